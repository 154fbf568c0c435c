// Parameters that take no part in the division among ranks: those that passes leave out, and those that are ignored.
#include <set>

#include "worker/comm/collectives.h"
#include "worker/nn/layers.h"
#include "worker/parallel/forms/data/zero/sharded_data_parallel.h"
#include "worker/parallel/sharding/parameter_shards.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

class Net : public nn::Module {
 public:
  Net() {
    Generator generator(3);
    first_ = &register_module("first", std::make_unique<nn::Linear>(7, 5, generator));
    second_ = &register_module("second", std::make_unique<nn::Linear>(5, 5, generator));
  }
  Variable forward(const Variable& input) override {
    const Variable hidden = (*first_)(input);
    return skip_second ? hidden : (*second_)(hidden);
  }

  bool skip_second = false;

 private:
  nn::Linear *first_, *second_;
};

// Says for each step in which ranks the second layer takes part.
using Steps = std::vector<std::set<int>>;

// Momentum moves what has a gradient of zero, and weight decay, too.
std::unique_ptr<optim::Optimizer> make_adam(const optim::NamedParameters& parameters) {
  return optim::make_optimizer("adamw", {.lr = 0.01, .weight_decay = 0.1}, parameters);
}

using Values = std::map<std::string, std::vector<float>>;

Values visited(DataParallelism& parallel) {
  Values all;
  parallel.visit_parameters([&](const std::string& name, const Tensor& value) {
    all[name] = {value.data<float>(), value.data<float>() + value.numel()};
  });
  return all;
}

void pass(Net& net, DataParallelism& parallel, int step, int rank, const Steps& steps) {
  net.skip_second = !steps[static_cast<std::size_t>(step)].contains(rank);
  Generator generator(5, static_cast<std::uint64_t>(100 * step + rank));
  Tensor input = Tensor::empty({4, 7}), target = Tensor::empty({4, 5});
  fill_normal(input, 0, 1, generator);
  fill_normal(target, 0, 1, generator);
  mse_loss(parallel.forward(Variable(input)), target).backward();
}

Values learn_whole(int ranks, const Steps& steps, const DdpOptions& options) {
  Values learnt;
  run_ranks(ranks, [&](ProcessGroup& group) {
    Net net;
    DistributedDataParallel ddp(net, group, options);
    const auto optimizer = make_adam(net.named_parameters());
    for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
      ddp.zero_grad();
      pass(net, ddp, step, group.rank(), steps);
      optimizer->step();
    }
    const Values own = values_of(net);
    if (group.rank() == 0) learnt = own;
  });
  return learnt;
}

// own: the parameters that each rank updates by itself.
Values learn_parts(Net& net, DataParallelism& parallel, int rank, const Steps& steps,
                   const std::set<std::string>& own = {}) {
  ParameterShards shards(*parallel.sharded_buckets());
  auto updated = shards.parameters();
  for (const auto& each : net.named_parameters())
    if (own.contains(each.first)) updated.push_back(each);
  const auto optimizer = make_adam(updated);
  for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
    parallel.zero_grad();
    pass(net, parallel, step, rank, steps);
    shards.define_gradients();
    optimizer->step();
    parallel.parameters_updated();
  }
  return visited(parallel);
}

const Steps used_now_and_then{{0, 1, 2}, {}, {0, 1, 2}, {}, {}, {0, 1, 2}};
const Steps used_at_some_ranks{{0, 1, 2}, {1}, {}, {0, 2}, {2}, {}};

}  // namespace

TEST_CASE("parameters of which ranks have parts are passed over by the optimizer where no rank has used them") {
  for (const Steps& steps : {used_now_and_then, used_at_some_ranks}) {
    const Values whole = learn_whole(3, steps, {.limits = small_buckets, .find_unused_parameters = true});
    run_ranks(3, [&](ProcessGroup& group) {
      Net first, second, third;
      DistributedDataParallel ddp(first, group,
                                  {.limits = small_buckets, .find_unused_parameters = true, .shard_gradients = true});
      require(nearly_equal(learn_parts(first, ddp, group.rank(), steps), whole), "parts of the state");
      ShardedDataParallel gradients(second, group, {.limits = small_buckets, .find_unused_parameters = true});
      require(nearly_equal(learn_parts(second, gradients, group.rank(), steps), whole), "parts of the gradients");
      if (steps == used_at_some_ranks) return;  // the ranks call different modules
      ShardedDataParallel parameters(third, group, {.shard_parameters = true, .find_unused_parameters = true});
      require(nearly_equal(learn_parts(third, parameters, group.rank(), steps), whole), "parts of the parameters");
    });
  }
}

TEST_CASE("with static_graph parts of what the first pass leaves out stay, and a pass that differs is an error") {
  const Steps steps{{}, {}, {0}};
  run_ranks(2, [&](ProcessGroup& group) {
    Net net;
    const Values before = values_of(net);
    DistributedDataParallel ddp(net, group, {.static_graph = true, .shard_gradients = true});
    const Values after = learn_parts(net, ddp, group.rank(), {steps.begin(), steps.begin() + 2});
    require(after.at("second.weight") == before.at("second.weight"), "not used");
    require(after.at("first.weight") != before.at("first.weight"), "used");
    if (group.rank() != 0) return;
    try {
      pass(net, ddp, 2, 0, steps);
      require(false, "no error");
    } catch (const Error& error) {
      require(std::string(error.what()).find("reached second.") != std::string::npos, error.what());
    }
  });
}

TEST_CASE("a pass that leaves out a parameter is an error where gradients are divided and that was not asked for") {
  run_ranks(1, [&](ProcessGroup& group) {
    Net net;
    ShardedDataParallel parallel(net, group, {});
    CHECK_THROWS_WITH(pass(net, parallel, 0, 0, {{}}), Catch::Contains("did not reach second."));
  });
}

TEST_CASE("ignored parameters stay each rank's own where the others are divided") {
  const Steps steps(4, {0, 1});
  const std::vector<std::string> ignored{"second.weight"};
  const Values whole = learn_whole(2, steps, {.limits = small_buckets, .ignored_parameters = ignored});
  for (const bool shard_parameters : {false, true})
    run_ranks(2, [&](ProcessGroup& group) {
      Net first, second;
      DistributedDataParallel ddp(first, group,
                                  {.limits = small_buckets, .ignored_parameters = ignored, .shard_gradients = true});
      const std::set<std::string> own{ignored.begin(), ignored.end()};
      require(nearly_equal(learn_parts(first, ddp, group.rank(), steps, own), whole), "parts of the state");
      ShardedDataParallel parallel(
          second, group,
          {.limits = small_buckets, .shard_parameters = shard_parameters, .ignored_parameters = ignored});
      require(parallel.own_parameters() == ignored, "own parameters");
      require(nearly_equal(learn_parts(second, parallel, group.rank(), steps, own), whole), "parts of more");
      const Tensor value = second.parameter("second.weight").value();
      std::vector<float> mine(value.data<float>(), value.data<float>() + value.numel()), least = mine;
      allreduce(group, least, ReduceOp::min);
      auto greatest = mine;
      allreduce(group, greatest, ReduceOp::max);
      require(least != greatest, "each rank has a value of its own");
      require(parallel.hook_state().size() == 1 && parallel.hook_state()[0].name == "own/second.weight", "saved");
    });
  run_ranks(1, [&](ProcessGroup& group) {
    Net net;
    CHECK_THROWS_WITH(ShardedDataParallel(net, group, {.ignored_parameters = {"third"}}),
                      "ignored_parameters: the model has no parameter or buffer third");
  });
}

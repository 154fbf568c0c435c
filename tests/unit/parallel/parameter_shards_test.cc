#include "ddprun/worker/parallel/parameter_shards.h"

#include <cmath>
#include <map>
#include <string>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/collectives.h"
#include "ddprun/worker/nn/models.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

using namespace ddprun;
using ddprun::testing::run_ranks;

namespace {

constexpr BucketLimits small_buckets{.first_bytes = 64, .bytes = 512};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::unique_ptr<nn::Module> make_net() {
  Generator generator(3);
  return nn::make_model("mlp", {.input = {7}, .outputs = 3, .hidden = {13}}, generator);
}

// A batch of its own for each step and rank.
void backward(nn::Module& net, DistributedDataParallel& ddp, int step, int rank) {
  net.zero_grad();
  Generator generator(5, static_cast<std::uint64_t>(100 * step + rank));
  Tensor input = Tensor::empty({4, 7}), target = Tensor::empty({4, 3});
  fill_normal(input, 0, 1, generator);
  fill_normal(target, 0, 1, generator);
  mse_loss(ddp.forward(Variable(input)), target).backward();
}

std::map<std::string, std::vector<float>> values_of(const optim::NamedTensors& tensors) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& [name, tensor] : tensors) all[name] = {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
  return all;
}

std::map<std::string, std::vector<float>> values_of(const nn::Module& net) {
  optim::NamedTensors tensors;
  for (const auto& [name, parameter] : net.named_parameters()) tensors.emplace_back(name, parameter.value());
  return values_of(tensors);
}

bool nearly_equal(const std::map<std::string, std::vector<float>>& a,
                  const std::map<std::string, std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, values] : a) {
    const auto& others = b.at(name);
    if (values.size() != others.size()) return false;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (std::abs(values[i] - others[i]) > 1e-6F + 1e-5F * std::abs(others[i])) return false;
  }
  return true;
}

struct Learnt {
  std::map<std::string, std::vector<float>> parameters, state;
};

// What one optimizer of all parameters at each of so many ranks learns in so many steps.
Learnt learn_whole(int ranks, int steps) {
  Learnt learnt;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel ddp(*net, group, {.limits = small_buckets});
    const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, net->named_parameters());
    for (int step = 0; step < steps; ++step) {
      backward(*net, ddp, step, group.rank());
      optimizer->step();
    }
    if (group.rank() == 0) learnt = {values_of(*net), values_of(optimizer->state())};
  });
  return learnt;
}

}  // namespace

TEST_CASE("divided updates learn what whole ones learn, and each rank keeps its share of the state") {
  for (const int ranks : {1, 2, 3, 5}) {
    const Learnt whole = learn_whole(ranks, 4);
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto net = make_net();
      DistributedDataParallel ddp(*net, group, {.limits = small_buckets, .shard_gradients = true});
      ParameterShards shards(ddp, group);
      const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
      for (int step = 0; step < 4; ++step) {
        backward(*net, ddp, step, group.rank());
        optimizer->step();
        shards.gather();
      }
      require(nearly_equal(values_of(*net), whole.parameters), "parameters");

      std::int64_t own = 0;
      for (const auto& [name, tensor] : optimizer->state()) own += tensor.numel();
      std::vector<std::int64_t> sum{own};
      group.allreduce(span_of(sum))->wait();
      std::int64_t all = 0;
      for (const auto& [name, values] : whole.state) all += std::ssize(values);
      require(sum[0] == all, "each element of the state is at one rank");
      require(ranks == 1 || own < all, "a part of the state");

      const auto gathered = shards.gather_state(optimizer->state());
      if (group.rank() == 0)
        require(nearly_equal(values_of(gathered), whole.state), "state");
      else
        require(gathered.empty(), "the state is rank 0's");
    });
  }
}

TEST_CASE("an optimizer goes on with the state that another one gathered") {
  const Learnt expected = learn_whole(2, 3);
  std::map<std::string, std::vector<float>> learnt;
  run_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel ddp(*net, group, {.limits = small_buckets, .shard_gradients = true});
    ParameterShards shards(ddp, group);
    const auto first = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
    for (int step = 0; step < 2; ++step) {
      backward(*net, ddp, step, group.rank());
      first->step();
      shards.gather();
    }
    // Another optimizer, with the state that a checkpoint would bring.
    const auto saved = shards.gather_state(first->state());
    const auto second = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
    auto read = shards.whole_state(second->state());
    for (std::size_t i = 0; i < read.size(); ++i) read[i].second.copy_from(saved[i].second);
    shards.scatter_state(read, second->state());
    second->set_step_count(first->step_count());
    backward(*net, ddp, 2, group.rank());
    second->step();
    shards.gather();
    require(nearly_equal(values_of(*net), expected.parameters), "parameters");
  });
}

TEST_CASE("groups of parameters become the same groups of parts") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net();
    net->parameter("fc1.bias").set_requires_grad(false);
    DistributedDataParallel ddp(*net, group, {.shard_gradients = true});
    const ParameterShards shards(ddp, group);
    const auto groups = shards.of(optim::split_one_dimensional(net->named_parameters()));
    require(groups.size() == 2, "two groups");
    require(groups[0].parameters.size() == 2 && groups[0].parameters[1].first == "fc2.weight", "weights");
    require(groups[1].parameters.size() == 1 && groups[1].parameters[0].first == "fc2.bias", "no frozen bias");
    require(groups[1].options.weight_decay == 0, "options");
  });
}

TEST_CASE("parameters are not sharded without sharded gradients, nor where some may be unused") {
  run_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel plain(*net, group);
    CHECK_THROWS_WITH(ParameterShards(plain, group), Catch::Contains("shard_gradients"));
    CHECK_THROWS_WITH(DistributedDataParallel(*net, group, {.find_unused_parameters = true, .shard_gradients = true}),
                      Catch::Contains("does not go with find_unused_parameters"));
  });
}

#include "worker/parallel/sharding/parameter_shards.h"

#include <string>

#include "common/error.h"
#include "worker/parallel/sharding/sharded_state.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

sharding::ShardedState state_of(const optim::Optimizer& optimizer, const ShardedBuckets& divided, ProcessGroup& group) {
  const auto& own = optimizer.state();
  return {sharding::placed_tensors(sharding::placements_of(divided, group), own, nullptr), own, group};
}

}  // namespace

TEST_CASE("divided updates learn what whole ones learn, and each rank keeps its share of the state") {
  for (const int ranks : {1, 2, 3, 5}) {
    const Learnt whole = learn_whole(ranks, 4);
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto net = make_net();
      DistributedDataParallel ddp(*net, group, {.limits = small_buckets, .shard_gradients = true});
      ParameterShards shards(*ddp.sharded_buckets());
      const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
      for (int step = 0; step < 4; ++step) {
        backward(ddp, step, group.rank());
        optimizer->step();
        ddp.parameters_updated();
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

      const auto gathered = state_of(*optimizer, *ddp.sharded_buckets(), group).gather();
      if (group.rank() == 0)
        require(nearly_equal(values_of(gathered), whole.state), "state");
      else
        require(gathered.empty(), "the state is rank 0's");
    });
  }
}

// The optimizer has only parts: the rest of this rank's gradients would stay, and the parts would be cleared late.
TEST_CASE("an optimizer of parts does not clear gradients") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel ddp(*net, group, {.limits = small_buckets, .shard_gradients = true});
    const ParameterShards shards(*ddp.sharded_buckets());
    const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
    try {
      optimizer->zero_grad();
      require(false, "an error");
    } catch (const Error& error) {
      require(error.code() == Errc::usage, error.what());
    }
  });
}

TEST_CASE("an optimizer goes on with the state that another one gathered") {
  const Learnt expected = learn_whole(2, 3);
  std::map<std::string, std::vector<float>> learnt;
  run_ranks(2, [&](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel ddp(*net, group, {.limits = small_buckets, .shard_gradients = true});
    ParameterShards shards(*ddp.sharded_buckets());
    const auto first = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
    for (int step = 0; step < 2; ++step) {
      backward(ddp, step, group.rank());
      first->step();
      ddp.parameters_updated();
    }
    // Another optimizer, with the state that a checkpoint would bring.
    const auto saved = state_of(*first, *ddp.sharded_buckets(), group).gather();
    const auto second = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
    const auto state = state_of(*second, *ddp.sharded_buckets(), group);
    auto read = state.whole_like();
    for (std::size_t i = 0; i < read.size(); ++i) read[i].second.copy_from(saved[i].second);
    state.scatter(read);
    second->set_step_count(first->step_count());
    backward(ddp, 2, group.rank());
    second->step();
    ddp.parameters_updated();
    require(nearly_equal(values_of(*net), expected.parameters), "parameters");
  });
}

TEST_CASE("groups of parameters become the same groups of parts") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net();
    net->parameter("fc1.bias").set_requires_grad(false);
    DistributedDataParallel ddp(*net, group, {.shard_gradients = true});
    const ParameterShards shards(*ddp.sharded_buckets());
    const auto groups = shards.of(optim::split_one_dimensional(net->named_parameters()));
    require(groups.size() == 2, "two groups");
    require(groups[0].parameters.size() == 2 && groups[0].parameters[1].first == "fc2.weight", "weights");
    require(groups[1].parameters.size() == 1 && groups[1].parameters[0].first == "fc2.bias", "no frozen bias");
    require(groups[1].options.weight_decay == 0, "options");
  });
}

TEST_CASE("parameters are not sharded without sharded gradients") {
  run_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel plain(*net, group);
    CHECK(plain.sharded_buckets() == nullptr);
  });
}

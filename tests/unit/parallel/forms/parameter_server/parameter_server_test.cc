#include "worker/parallel/forms/parameter_server/parameter_server.h"

#include <mutex>
#include <numeric>

#include "common/error.h"
#include "worker/parallel/sharding/parameter_shards.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/small_net.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Values = std::map<std::string, std::vector<float>>;

const optim::OptimOptions sgd{.lr = 0.05, .momentum = 0.9};

void backward(nn::Module& net, std::int64_t update) {
  Generator generator(11, static_cast<std::uint64_t>(update));
  Tensor input = Tensor::empty({4, 7}), target = Tensor::empty({4, 3});
  fill_normal(input, 0, 1, generator);
  fill_normal(target, 0, 1, generator);
  mse_loss(net(Variable(input)), target).backward();
}

// Returns the parameters that one process learns in that many updates.
Values learn_alone(int updates) {
  const auto net = make_net();
  const auto optimizer = optim::make_optimizer("sgd", sgd, net->named_parameters());
  for (int u = 0; u < updates; ++u) {
    net->zero_grad();
    backward(*net, u);
    optimizer->step();
  }
  return values_of(*net);
}

struct Trained {
  Values values;
  std::vector<std::int64_t> staleness;   // one for each of rank 0's updates
  std::map<std::int64_t, int> computed;  // times that each update was computed
};

// Trains two rounds of that many updates; all ranks end with the same parameters.
Trained train(int ranks, int updates, const ParameterServerOptions& options) {
  Trained trained;
  std::mutex mutex;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_net();
    ParameterServer server(*net, group, options);
    std::unique_ptr<optim::Optimizer> optimizer;
    if (server.is_server())
      optimizer = optim::make_optimizer("sgd", sgd, ParameterShards(server.sharded_buckets()).parameters());
    for (int round = 0; round < 2; ++round) {
      server.round(
          updates,
          [&](std::int64_t ticket) {
            const std::int64_t update = round * updates + ticket;
            backward(*net, update);
            const std::lock_guard lock(mutex);
            ++trained.computed[update];
          },
          [&] { optimizer->step(); });
    }
    const std::lock_guard lock(mutex);
    if (trained.values.empty()) trained.values = values_of(*net);
    require(trained.values == values_of(*net), "the same parameters at all ranks");
    if (group.rank() == 0) trained.staleness = server.staleness();
  });
  return trained;
}

}  // namespace

TEST_CASE("with a bound of zero servers of parameters learn what one process does") {
  const Values alone = learn_alone(20);
  for (const auto& [ranks, servers] : {std::pair{2, 1}, {4, 1}, {4, 3}, {5, 2}}) {
    INFO(ranks << " ranks, " << servers << " servers");
    const Trained trained = train(ranks, 10, {.servers = servers, .staleness = 0});
    CHECK(trained.values == alone);
    CHECK(trained.staleness == std::vector<std::int64_t>{20});
  }
}

TEST_CASE("workers make each update of a round once, from parameters no older than the bound") {
  for (const auto& [servers, bound] : {std::pair{1, 1}, {1, 4}, {2, 2}, {3, 16}}) {
    INFO(servers << " servers, bound " << bound);
    const Trained trained = train(servers + 4, 30, {.servers = servers, .staleness = bound});
    REQUIRE(trained.computed.size() == 60);
    for (const auto& [update, times] : trained.computed) CHECK(times == 1);
    REQUIRE(std::ssize(trained.staleness) == bound + 1);
    CHECK(std::accumulate(trained.staleness.begin(), trained.staleness.end(), std::int64_t{0}) == 60);
  }
}

TEST_CASE("a worker that fails ends the round at all ranks") {
  try {
    run_ranks(4, [](ProcessGroup& group) {
      const auto net = make_net();
      ParameterServer server(*net, group, {.servers = 1});
      server.round(
          100,
          [&](std::int64_t ticket) {
            if (ticket == 5) throw std::runtime_error("a planted failure");
            backward(*net, ticket);
          },
          [] {});
    });
  } catch (const Error& e) {
    INFO(e.what());
    CHECK(e.code() == Errc::peer_lost);
    return;
  }
  FAIL("no error");
}

TEST_CASE("numbers that leave no server or no worker are refused") {
  for (const ParameterServerOptions& options :
       {ParameterServerOptions{.servers = 0}, ParameterServerOptions{.servers = 2},
        ParameterServerOptions{.servers = 1, .staleness = -1}}) {
    CHECK_THROWS_AS(run_ranks(2,
                              [&](ProcessGroup& group) {
                                const auto net = make_net();
                                ParameterServer(*net, group, options);
                              }),
                    Error);
  }
}

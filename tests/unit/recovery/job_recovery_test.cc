// Processes that recover with a launcher's plans, which the test makes.
#include "rendezvous/store/tcp_store.h"
#include "worker/recovery/recovery.h"
#include "tests/support/catch.h"
#include "tests/support/forked_ranks.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

constexpr auto bound = 60s;  // limit of a test

std::shared_ptr<Store> connect(std::uint16_t port) {
  return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = port}, Deadline::in(bound));
}

InitOptions options_of(int rank, int joins_in, std::uint16_t port) {
  WorkerEnv env;
  env.rank = rank;
  env.world_size = 2;
  env.local_world_size = 2;
  env.local_rank = rank;
  env.master_port = port;
  env.use_agent_store = true;
  env.recovery = joins_in;
  return {.backend = "gloo", .config = {.timeout = 10min, .heartbeat = 100ms}, .env = env};
}

void decide(Store& store, std::uint64_t generation, const std::vector<std::string>& members) {
  const RecoveryKeys keys{0};
  store.set(keys.newest(), std::to_string(generation), Deadline::in(bound));
  store.set(keys.members(generation), member_list(members), Deadline::in(bound));
}

// Returns a member of one generation that only takes part in its forming.
std::unique_ptr<ElasticWorld> join_alone(int rank, std::uint64_t generation, const std::vector<std::string>& members,
                                         std::uint16_t port) {
  auto world = std::make_unique<ElasticWorld>(options_of(rank, 0, port), RecoveryKeys{0}.groups(),
                                              members.at(static_cast<std::size_t>(rank)));
  world->group().reconfigure(generation, members);
  return world;
}

}  // namespace

TEST_CASE("a plan that is decided while the ranks of an older one compare their steps is carried out") {
  const std::vector<std::string> first{"0.1", "1.0"}, second{"0.2", "1.0"};
  ForkedRanks ranks(3, [&](int rank, std::uint16_t port) -> std::string {
    const auto store = connect(port);
    if (rank == 0) {  // it joins the first generation, and no comparison
      const auto world = join_alone(0, 1, first, port);
      store->set("joined", "", Deadline::in(bound));
      store->wait({"end"}, Deadline::in(bound));
      return "joined";
    }
    Recovery recovery(rank == 1 ? options_of(1, 0, port) : options_of(0, 2, port), 10min);
    if (rank == 1) recovery.on_applied(7);
    const auto resumed = recovery.recover("a peer was lost", [](ProcessGroup& group, const Catchup& catchup, bool) {
      std::vector<float> state(10, group.rank() == catchup.source ? 3.5F : 0);
      group.broadcast(span_of(state), catchup.source, {.blocking = true});
      if (state.back() != 3.5F) throw Error(Errc::internal, "another state");
      return catchup.step;
    });
    std::vector<float> values(10, 1);
    resumed->group.allreduce(span_of(values), ReduceOp::sum, {.blocking = true});
    if (rank == 1) store->set("end", "", Deadline::in(bound));
    return fmt::format("step {} in generation {}, sum {}", resumed->catchup.step, resumed->generation, values[0]);
  });
  const auto store = connect(ranks.store_port());
  decide(*store, 1, first);
  store->wait({"joined"}, Deadline::in(bound));
  decide(*store, 2, second);
  for (const int rank : {1, 2}) CHECK(ranks.result(rank, Deadline::in(bound)) == "step 7 in generation 2, sum 2");
  CHECK(ranks.result(0, Deadline::in(bound)) == "joined");
}

TEST_CASE("a process that waits to join ends when the run is done") {
  const bool decided = GENERATE(false, true);  // the others may be done before they learn of it
  ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
    Recovery recovery(options_of(rank, rank, port), 10min);
    recovery.announce();
    if (rank == 1)
      return recovery.recover("it joins", [](ProcessGroup&, const Catchup& catchup, bool) { return catchup.step; })
                 ? "joined"
                 : "left";
    const auto store = connect(port);
    store->wait({RecoveryKeys{0}.able("1.1")}, Deadline::in(bound));
    if (decided) decide(*store, 1, {"0.0", "1.1"});
    recovery.finish();
    return "done";
  });
  CHECK(ranks.result(1, Deadline::in(bound)) == "left");
  CHECK(ranks.result(0, Deadline::in(bound)) == "done");
}

TEST_CASE("an abort after a recovery concerns the group that has formed since") {
  const std::vector<std::string> members{"0.1", "1.0"};
  ForkedRanks ranks(2, [&](int rank, std::uint16_t port) -> std::string {
    Recovery recovery(options_of(rank, rank == 0 ? 1 : 0, port), 10min);
    if (rank == 1) recovery.on_applied(7);
    const auto resumed =
        recovery.recover("a peer was lost", [](ProcessGroup&, const Catchup& catchup, bool) { return catchup.step; });
    resumed->group.barrier({.blocking = true});  // both have recovered
    if (rank == 1) recovery.abort("the device has failed");
    try {
      resumed->group.barrier({.blocking = true});
      return "no failure";
    } catch (const Error& error) {
      return error.what();
    }
  });
  decide(*connect(ranks.store_port()), 1, members);
  for (const int rank : {0, 1})
    CHECK_THAT(ranks.result(rank, Deadline::in(bound)), Catch::Contains("the device has failed"));
}

TEST_CASE("after a change that rank 0 has seen one rank leaves, and the other goes on with one that joins") {
  const std::vector<std::string> second{"0.0", "1.1"};
  ForkedRanks ranks(3, [&](int rank, std::uint16_t port) -> std::string {
    const auto nothing = [](ProcessGroup&, const Catchup& catchup, bool) { return catchup.step; };
    Recovery recovery(options_of(rank == 2 ? 1 : rank, rank == 2 ? 1 : 0, port), 10min);
    if (rank == 2) {
      recovery.announce();
      const auto joined = recovery.recover("it joins", nothing);
      return fmt::format("rank {} after step {}", joined->group.rank(), joined->catchup.step);
    }
    auto& group = recovery.form_first();
    recovery.on_applied(7);
    recovery.announce();
    recovery.watch_for_change();
    std::vector<float> seen(1, 0);
    while (seen[0] == 0) {  // each operation is a step
      seen[0] = recovery.change_decided() ? 1 : 0;
      group.allreduce(span_of(seen), ReduceOp::sum, {.blocking = true});
    }
    const auto resumed = recovery.change(nothing);
    return resumed ? fmt::format("rank {} after step {}", resumed->group.rank(), resumed->catchup.step) : "left";
  });
  const auto store = connect(ranks.store_port());
  store->wait({RecoveryKeys{0}.able("0.0"), RecoveryKeys{0}.able("1.0"), RecoveryKeys{0}.able("1.1")},
              Deadline::in(bound));
  decide(*store, 1, second);
  CHECK(ranks.result(0, Deadline::in(bound)) == "rank 0 after step 7");
  CHECK(ranks.result(1, Deadline::in(bound)) == "left");
  CHECK(ranks.result(2, Deadline::in(bound)) == "rank 1 after step 7");
}

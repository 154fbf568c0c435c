// Ranks that are started without ddprun: rank 0 serves the store.
#include <csignal>
#include <sys/wait.h>

#include "common/error.h"
#include "rendezvous/store/tcp_store.h"
#include "worker/comm/collectives.h"
#include "worker/comm/init.h"
#include "tests/support/catch.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/free_port.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

WorkerEnv place(int rank, int size, std::uint16_t port) {
  return WorkerEnv::from(
      Environment(std::map<std::string, std::string, std::less<>>{{"RANK", std::to_string(rank)},
                                                                  {"WORLD_SIZE", std::to_string(size)},
                                                                  {"MASTER_ADDR", "localhost"},
                                                                  {"MASTER_PORT", std::to_string(port)}}));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks connect to MASTER_ADDR and MASTER_PORT, and rank 0 stays until all have left") {
  constexpr int size = 3;
  const auto port = free_port();
  ForkedRanks ranks(size, [port](int rank, std::uint16_t) {
    const auto world = init_process_group({.config = {.timeout = 30s}, .env = place(rank, size, port)});
    std::vector<std::int64_t> sum = {rank};
    allreduce(world->group(), sum, ReduceOp::sum);
    // Rank 0 leaves first; the others still find the store.
    if (rank == 0) return std::to_string(sum[0]);
    world->store().barrier("late", size - 1, Deadline::in(20s));
    world->store().set("said by " + std::to_string(rank), "x", Deadline::in(20s));
    return std::to_string(sum[0]);
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.result(rank, Deadline::in(40s)) == "3");
}

// The heartbeats of rank 1 go to the frozen store. The freeze lasts until another client has waited there for twice the
// time that a client of a store allows by default.
TEST_CASE("rank 0, which serves the store, may be frozen for as long as any other rank") {
  constexpr int size = 2;
  const auto port = free_port();
  ForkedRanks ranks(size, [port](int rank, std::uint16_t outside) {
    TcpStore test({.host = "127.0.0.1", .port = outside}, Deadline::in(30s));
    const auto world = init_process_group(
        {.config = {.timeout = 60s, .freeze_bound = 60s, .heartbeat = 100ms}, .env = place(rank, size, port)});
    test.barrier("up", size + 1, Deadline::in(30s));
    test.wait({"resumed"}, Deadline::in(60s));
    std::vector<std::int64_t> sum = {rank};
    allreduce(world->group(), sum, ReduceOp::sum);
    return std::to_string(sum[0]);
  });
  TcpStore test({.host = "127.0.0.1", .port = ranks.store_port()}, Deadline::in(30s));
  test.barrier("up", size + 1, Deadline::in(30s));
  TcpStore client({.host = "127.0.0.1", .port = port}, Deadline::in(30s));
  ranks.signal(0, SIGSTOP);
  siginfo_t stopped{};  // once all of its threads are
  REQUIRE(::waitid(P_PID, static_cast<id_t>(ranks.pid(0)), &stopped, WSTOPPED | WNOWAIT) == 0);
  CHECK_THROWS_WITH(client.num_keys(Deadline::in(2 * TcpStoreOptions{}.grace)), Catch::Contains("no reply"));
  ranks.signal(0, SIGCONT);
  test.set("resumed", "", Deadline::in(30s));
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.result(rank, Deadline::in(40s)) == "1");
}

TEST_CASE("when rank 0 dies with the store, the others name it") {
  constexpr int size = 3;
  const auto port = free_port();
  ForkedRanks ranks(size, [port](int rank, std::uint16_t) -> std::string {
    const auto world = init_process_group({.config = {.timeout = 60s}, .env = place(rank, size, port)});
    std::vector<float> values(1000);
    try {
      allreduce(world->group(), values, ReduceOp::sum);  // rank 0 may complete it before the others
      if (rank == 0) ::raise(SIGKILL);
      while (true) allreduce(world->group(), values, ReduceOp::sum);
    } catch (const Error& error) {
      return (error.code() == Errc::peer_lost ? "peer_lost: " : "other: ") + std::string(error.what());
    }
  });
  for (const int rank : {1, 2}) {
    const auto text = ranks.result(rank, Deadline::in(30s));
    INFO(text);
    CHECK(contains(text, "peer_lost: "));
    CHECK(contains(text, "rank 0"));
  }
}

TEST_CASE("if ranks are missing the error names them") {
  constexpr int size = 3;
  const auto port = free_port();
  ForkedRanks ranks(size, [port](int rank, std::uint16_t outside) -> std::string {
    if (rank == 2) return "";
    TcpStore({.host = "127.0.0.1", .port = outside}, Deadline::in(30s)).barrier("both run", 2, Deadline::in(30s));
    init_process_group({.config = {.timeout = 3s}, .env = place(rank, size, port)});
    return "joined";
  });
  const auto text = ranks.result(0, Deadline::in(30s)) + ranks.result(1, Deadline::in(30s));
  INFO(text);
  CHECK(contains(text, "rank(s) 2 of 3 did not join the group within 3."));
}

TEST_CASE("a MASTER_PORT in use is an error that names it") {
  const StoreServerThread other({.host = "127.0.0.1"});
  try {
    init_process_group({.config = {.timeout = 1s}, .env = place(0, 2, other.port())});
    FAIL("it joined");
  } catch (const Error& error) {
    CHECK(contains(error.what(), "MASTER_PORT " + std::to_string(other.port())));
  }
}

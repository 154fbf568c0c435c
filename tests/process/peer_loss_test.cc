// The failures that the ranks of a Gloo group get when one of them dies, freezes, is late or leaves, or when the store
// is lost.
#include <csignal>
#include <thread>

#include "rendezvous/store/tcp_store.h"
#include "worker/comm/backends/gloo/gloo_group.h"
#include "tests/support/catch.h"
#include "tests/support/forked_ranks.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

std::shared_ptr<Store> connect(std::uint16_t port) {
  return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = port}, Deadline::in(60s));
}

std::unique_ptr<ProcessGroup> join(int rank, int size, std::uint16_t port, std::chrono::seconds freeze_bound = 5s) {
  return comm::make_gloo_group({.rank = rank,
                                .size = size,
                                .connect_store = [port] { return connect(port); },
                                .config = {.timeout = 120s, .freeze_bound = freeze_bound, .heartbeat = 200ms}});
}

std::string code_and_text(const Error& error) {
  const std::string code = error.code() == Errc::peer_lost         ? "peer_lost"
                           : error.code() == Errc::timeout         ? "timeout"
                           : error.code() == Errc::connection_lost ? "connection_lost"
                                                                   : "other";
  return code + ": " + error.what();
}

// Repeats an allreduce until it fails, and returns the failure. Rank 0 counts in the store.
std::string reduce_until_failure(ProcessGroup& group, Store& store) {
  std::vector<float> values(100'000, 1.0f);
  try {
    for (int step = 1;; ++step) {
      group.allreduce(span_of(values), ReduceOp::average)->wait();
      if (group.rank() == 0) store.add("steps", 1, Deadline::in(60s));
      if (step == 20 && group.rank() == 0) store.set("running", "", Deadline::in(60s));
    }
  } catch (const Error& error) {
    return code_and_text(error);
  }
}

std::string failure_of_reduction(ProcessGroup& group, std::chrono::milliseconds timeout) {
  std::vector<float> values(100'000, 1.0f);
  try {
    group.allreduce(span_of(values), ReduceOp::average, {.timeout = timeout})->wait();
  } catch (const Error& error) {
    return code_and_text(error);
  }
  return "no error";
}

void await_steps(ForkedRanks& ranks) {
  connect(ranks.store_port())->wait({"running"}, Deadline::in(60s));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string named(const ForkedRanks& ranks, int rank) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(ranks.pid(rank)) + " on host ";
}

}  // namespace

TEST_CASE("a killed rank is named by all others at once, long before the timeout") {
  constexpr int size = 4;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) {
    const auto store = connect(port);
    const auto group = join(rank, size, port);
    return reduce_until_failure(*group, *store);
  });
  await_steps(ranks);
  ranks.signal(2, SIGKILL);
  for (const int rank : {0, 1, 3}) {
    const auto text = ranks.result(rank, Deadline::in(60s));
    INFO(text);
    CHECK(contains(text, "peer_lost: " + named(ranks, 2)));
    CHECK(contains(text, "was lost"));
  }
}

TEST_CASE("a frozen rank is named by all others after the timeout of their operation") {
  constexpr int size = 3;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) {
    const auto store = connect(port);
    const auto group = join(rank, size, port, 0s);
    group->barrier()->wait();
    store->set("joined/" + std::to_string(rank), "", Deadline::in(60s));
    store->wait({"frozen"}, Deadline::in(60s));
    return failure_of_reduction(*group, 2s);
  });
  const auto store = connect(ranks.store_port());
  store->wait({"joined/0", "joined/1", "joined/2"}, Deadline::in(60s));
  ranks.signal(1, SIGSTOP);
  store->set("frozen", "", Deadline::in(60s));
  for (const int rank : {0, 2}) {
    const auto text = ranks.result(rank, Deadline::in(60s));
    INFO(text);
    CHECK(contains(text, "peer_lost: "));
    CHECK(contains(text, named(ranks, 1)));
    CHECK(contains(text, "sent no heartbeat"));
    CHECK(contains(text, "did not complete"));
  }
}

TEST_CASE("a rank that runs but does not enter an operation is named, with its last operation") {
  constexpr int size = 3;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) {
    const auto store = connect(port);
    const auto group = join(rank, size, port);
    group->barrier()->wait();
    if (rank == 1) {
      store->wait({"release"}, Deadline::in(60s));
      return std::string("released");
    }
    return failure_of_reduction(*group, 1s);
  });
  for (const int rank : {0, 2}) {
    const auto text = ranks.result(rank, Deadline::in(60s));
    INFO(text);
    CHECK(contains(text, "timeout: allreduce(average) of 100000 float32 #1"));
    CHECK(contains(text, named(ranks, 1)));
    CHECK(contains(text, "barrier #0"));
  }
  connect(ranks.store_port())->set("release", "", Deadline::in(60s));
  CHECK(ranks.result(1, Deadline::in(60s)) == "released");
}

TEST_CASE("a rank that ends with an exception of its own is named as having left") {
  constexpr int size = 3;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) {
    const auto store = connect(port);
    const auto group = join(rank, size, port);
    group->barrier()->wait();
    if (rank == 2) throw std::runtime_error("bad sample");
    return reduce_until_failure(*group, *store);
  });
  for (const int rank : {0, 1}) {
    const auto text = ranks.result(rank, Deadline::in(60s));
    INFO(text);
    CHECK(contains(text, "peer_lost: " + named(ranks, 2)));
    CHECK(contains(text, "left the group"));
  }
  CHECK(ranks.result(2, Deadline::in(60s)) == "bad sample");
}

TEST_CASE("a rank killed while the others form the group is named") {
  constexpr int size = 3;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) -> std::string {
    if (rank == 2) {
      // It sets its last will (as in MQTT) and dies before it publishes its address.
      const auto store = connect(port);
      store->set_will("group/0/failure", "1\nrank 2 was lost", Deadline::in(60s));
      store->set("announced", "", Deadline::in(60s));
      connect(port)->wait({"never"}, Deadline::in(60s));
    }
    connect(port)->wait({"announced"}, Deadline::in(60s));
    try {
      join(rank, size, port);
    } catch (const Error& error) {
      return error.what();
    }
    return "joined";
  });
  connect(ranks.store_port())->wait({"announced", "group/0/place/0", "group/0/place/1"}, Deadline::in(60s));
  ranks.signal(2, SIGKILL);
  for (const int rank : {0, 1}) CHECK(ranks.result(rank, Deadline::in(60s)) == "rank 2 was lost");
}

TEST_CASE("when the store is lost, all ranks fail and say so") {
  constexpr int size = 2;
  ForkedRanks ranks(size, [](int rank, std::uint16_t port) {
    const auto store = connect(port);
    const auto group = join(rank, size, port);
    return reduce_until_failure(*group, *store);
  });
  await_steps(ranks);
  ranks.stop_store();
  for (const int rank : {0, 1}) {
    const auto text = ranks.result(rank, Deadline::in(60s));
    INFO(text);
    CHECK(contains(text, "connection_lost: "));
    CHECK(contains(text, "store"));
  }
}

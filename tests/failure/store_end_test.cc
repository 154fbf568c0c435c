// A rank that serves the group's store leaves the group in order, and its process ends: the others continue.
#include <csignal>

#include "worker/comm/subgroups.h"
#include "tests/failure/job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::failure;
using ddprun::testing::ForkedRanks;

namespace {

constexpr int size = 3, rounds = 200;

// Serves the store of the ranks, and leaves first; a kill ends it without closing anything.
std::string serve_and_leave(const std::string& backend, TcpStore& outside) {
  StoreServerThread server({.host = "127.0.0.1"});
  outside.set("port", std::to_string(server.port()), Deadline::in(test_timeout));
  auto options = options_for(backend, 0, size, server.port());
  options.store_host = 0;
  auto group = comm::make_group(backend, options);
  const auto rest = split(*group, 0, 0);
  std::vector<float> value{1};
  group->broadcast(span_of(value), 0)->wait();
  group.reset();
  server.announce_end();
  if (!server.await_end_known(Deadline::in(test_timeout))) return "the others do not know that the store ends";
  ::raise(SIGKILL);
  return "";
}

// The calls of the others without rank 0. Returns when rank 2 has ended.
std::string go_on(const std::string& backend, int rank, TcpStore& outside) {
  const auto port = std::stoi(outside.get("port", Deadline::in(test_timeout)));
  auto options = options_for(backend, rank, size, static_cast<std::uint16_t>(port));
  options.store_host = 0;
  const auto group = comm::make_group(backend, options);
  const auto rest = split(*group, 1, 0);
  std::vector<float> value{0};
  group->broadcast(span_of(value), 0)->wait();
  outside.wait({"rank 0 has ended"}, Deadline::in(test_timeout));
  for (int round = 0; round < rounds; ++round) {
    if (rank == 1) group->send(span_of(value), 2, 1)->wait();
    if (rank == 2) group->recv(span_of(value), 1, 1)->wait();
    rest->allreduce(span_of(value), ReduceOp::average)->wait();
  }
  if (value[0] != 1) return "another value";
  outside.set("rank " + std::to_string(rank) + " goes on", "", Deadline::in(test_timeout));
  if (rank == 2) outside.wait({"never"}, Deadline::in(test_timeout));
  group->recv(span_of(value), 2, 1)->wait();
  return "a message of a rank that ended";
}

}  // namespace

TEST_CASE("a group goes on when the rank that serves its store has left and its process ends") {
  for (const auto& backend : backends) {
    INFO(backend);
    ForkedRanks ranks(size, [&](int rank, std::uint16_t port) -> std::string {
      const auto outside = connect(port);
      try {
        return rank == 0 ? serve_and_leave(backend, *outside) : go_on(backend, rank, *outside);
      } catch (const Error& error) {
        return code_and_text(error);
      }
    });
    CHECK(ranks.result(0, Deadline::in(test_timeout)).empty());
    connect(ranks.store_port())->set("rank 0 has ended", "", Deadline::in(test_timeout));
    for (const int rank : {1, 2}) await(ranks, "rank " + std::to_string(rank) + " goes on");
    // A death is reported by name without the store, too.
    ranks.signal(2, SIGKILL);
    const auto said = ranks.result(1, Deadline::in(test_timeout));
    INFO(said);
    CHECK(contains(said, "peer_lost: " + named(ranks, 2)));
  }
}

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "rendezvous/backend.h"
#include "rendezvous/store/prefix_store.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/accept.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"
#include "tests/unit/rendezvous/session_agents.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;
namespace asio = boost::asio;

TEST_CASE("of two agents on one host one serves the endpoint until the other has its job result") {
  Loops loops;
  auto& loop = loops.make();
  auto& other = loops.make();
  const auto port = free_port();
  auto first = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  auto second = open_rendezvous(other, {.host = "localhost", .port = port});
  CHECK(first->is_host());
  CHECK_FALSE(second->is_host());
  Agent a(first->rendezvous(), "a", quick(2, 2)), b(second->rendezvous(), "b", quick(2, 2));
  REQUIRE(loops.run_until([&] { return a.started && b.started; }));
  b.succeed();
  CHECK(loops.run_until([&] { return a.started.has_value(); }));
  a.succeed();
  loops.freeze(other);
  bool drained = false;
  REQUIRE(loops.run_until([&] { return a.ended.has_value(); }));
  first->drain(20s, [&] { drained = true; });
  CHECK_FALSE(loops.run_until([&] { return drained; }, 50ms));
  loops.thaw();
  REQUIRE(loops.run_until([&] { return drained; }));
  CHECK(b.ended->success);
}

TEST_CASE("draining waits for nodes that do not take the job result for a time, and not at all if nothing is served") {
  Loops loops;
  auto& loop = loops.make();
  auto& other = loops.make();
  const auto port = free_port();
  auto first = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  auto second = open_rendezvous(other, {.host = "127.0.0.1", .port = port, .is_host = false});
  auto third = open_rendezvous(loop, {.host = "127.0.0.1", .port = port, .is_host = false});
  Agent a(first->rendezvous(), "a", quick(2, 2)), b(second->rendezvous(), "b", quick(2, 2));
  REQUIRE(loops.run_until([&] { return a.started && b.started; }));
  b.succeed();
  CHECK(loops.run_until([&] { return a.started.has_value(); }));
  a.succeed();
  loops.freeze(other);
  REQUIRE(loops.run_until([&] { return a.ended.has_value(); }));
  int drained = 0;
  first->drain(50ms, [&] { ++drained; });
  third->drain(20s, [&] { ++drained; });
  CHECK(loops.run_until([&] { return drained == 2; }));
}

TEST_CASE("an endpoint whose own job has ended serves the other jobs until they end, and no new ones") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  auto own = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  const auto guest = [&] { return open_rendezvous(loop, {.host = "127.0.0.1", .port = port, .is_host = false}); };
  const auto second = guest(), third = guest(), fourth = guest();
  JobPolicy other = quick(1, 2), later = quick(1, 1);
  other.run_id = "other";
  later.run_id = "later";
  Agent a(own->rendezvous(), "a", quick(1, 1)), b(second->rendezvous(), "b", other);
  REQUIRE(loops.run_until([&] { return a.started && b.started; }));
  a.succeed();
  REQUIRE(loops.run_until([&] { return a.ended.has_value(); }));
  bool drained = false;
  own->drain(1ms, [&] { drained = true; });
  Agent c(third->rendezvous(), "c", other), d(fourth->rendezvous(), "d", later);
  REQUIRE(loops.run_until([&] { return b.runs(1) && c.runs(1); }));
  CHECK_FALSE(d.proposed);
  CHECK_FALSE(drained);
  SECTION("until they end") {
    b.succeed();
    c.succeed();
    REQUIRE(loops.run_until([&] { return b.ended && c.ended; }));
    CHECK(loops.run_until([&] { return drained; }));
  }
  SECTION("until this process withdraws") {
    own->withdraw("stopped by SIGTERM");
    CHECK(loops.run_until([&] { return !b.broken.empty() || b.lost; }));
    CHECK(loops.run_until([&] { return drained; }));
  }
}

TEST_CASE("an agent on the endpoint's host replaces a server that is lost before the job has started") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  auto first = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  auto second = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  REQUIRE_FALSE(second->is_host());
  first.reset();
  Agent b(second->rendezvous(), "b", quick(1, 1));
  REQUIRE(loops.run_until([&] { return b.started.has_value(); }));
  CHECK(second->is_host());
}

TEST_CASE("an agent on the endpoint's host replaces a server that is lost during a job") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  auto first = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  auto second = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  Agent a(first->rendezvous(), "a", quick(1, 2)), b(second->rendezvous(), "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return b.started && b.started->members.size() == 2; }));
  const auto generation = b.started->generation;
  first->withdraw("stopped by SIGTERM");
  bool drained = false;
  first->drain(20s, [&] { drained = true; });
  REQUIRE(loops.run_until([&] { return drained; }));
  first.reset();
  REQUIRE(loops.run_until([&] { return b.runs(generation + 1); }));
  CHECK(second->is_host());
}

TEST_CASE("while the endpoint drains, new nodes wait for the next server") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  auto first = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  auto old = std::make_unique<SessionClient>(loop, to(port));
  Agent a(*old, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
  bool drained = false;
  first->drain(20s, [&] { drained = true; });
  auto second = open_rendezvous(loop, {.host = "127.0.0.1", .port = port});
  JobPolicy next = quick(1, 1);
  next.run_id = "next";
  Agent b(second->rendezvous(), "b", next);
  CHECK_FALSE(loops.run_until([&] { return b.proposed.has_value(); }, 100ms));
  old.reset();
  REQUIRE(loops.run_until([&] { return drained; }));
  first.reset();
  CHECK(loops.run_until([&] { return b.started.has_value(); }));
}

TEST_CASE("standalone takes a free port of its own") {
  Loops loops;
  auto& loop = loops.make();
  auto first = open_rendezvous(loop, {.standalone = true});
  auto second = open_rendezvous(loop, {.standalone = true});
  CHECK(first->endpoint() != second->endpoint());
  Agent a(first->rendezvous(), "a", quick(1, 1)), b(second->rendezvous(), "b", quick(1, 1));
  CHECK(loops.run_until([&] { return a.started && b.started; }));
}

TEST_CASE("unsupported and unknown back ends are refused by name") {
  asio::io_context loop;
  CHECK_THROWS_WITH(open_rendezvous(loop, {.backend = "etcd-v2"}), Catch::Contains("etcd-v2 is not supported"));
  CHECK_THROWS_WITH(open_rendezvous(loop, {.backend = "nope"}), Catch::Contains("nope is unknown"));
  auto first = open_rendezvous(loop, {.standalone = true});
  const auto port = static_cast<std::uint16_t>(std::stoi(first->endpoint().substr(first->endpoint().find(':') + 1)));
  CHECK_THROWS_AS(open_rendezvous(loop, {.port = port, .is_host = true}), Error);
}

// ---- static

namespace {

BackendOptions static_node(std::uint16_t port, int rank) {
  return {.backend = "static", .host = "127.0.0.1", .port = port, .node_rank = rank};
}

}  // namespace

TEST_CASE("static: ddprun agents share rounds and failures, and workers use the endpoint's store") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  auto second = open_rendezvous(loop, static_node(port, 1));
  auto first = open_rendezvous(loop, static_node(port, 0));
  CHECK(first->is_host());
  CHECK(first->serves_workers());
  Agent b(second->rendezvous(), "b", quick(2, 2, 1), 1), a(first->rendezvous(), "a", quick(2, 2, 1), 0);
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  CHECK(b.started->self == 1);
  CHECK(b.started->world_size == 4);
  CHECK(b.started->master_addr == "127.0.0.1");
  CHECK(b.started->master_port == port);
  const auto query_endpoint = [&](auto question) {
    auto answer = std::async(std::launch::async, [&] {
      TcpStore worker({.host = "127.0.0.1", .port = port}, Deadline::in(20s));
      return question(worker);
    });
    REQUIRE(loops.run_until([&] { return answer.wait_for(0s) == std::future_status::ready; }));
    return answer.get();
  };
  CHECK(query_endpoint([](TcpStore& s) { return s.add("default_pg/key", 1, Deadline::in(20s)); }) == 1);
  b.fail(3);
  REQUIRE(loops.run_until([&] { return a.runs(1) && b.runs(1); }));
  // The workers of the new round find an empty store, and a node that rejoins finds the agents' keys.
  CHECK_FALSE(query_endpoint([](TcpStore& s) { return s.check({"default_pg/key"}, Deadline::in(20s)); }));
  CHECK(query_endpoint([](TcpStore& s) { return s.check({"none/torchelastic/role_info/1"}, Deadline::in(20s)); }));
  a.fail(4);
  REQUIRE(loops.run_until([&] { return a.ended && b.ended; }));
  CHECK(b.ended->exit_code == 4);
}

TEST_CASE("static: a missing node is named") {
  Loops loops;
  auto& loop = loops.make();
  auto first = open_rendezvous(loop, static_node(free_port(), 0));
  JobPolicy policy = quick(2, 2);
  policy.join_timeout = 700ms;
  Agent a(first->rendezvous(), "a", policy, 0);
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::timeout);
  CHECK_THAT(a.lost->what(), Catch::Contains("node rank 1 had not joined"));
}

TEST_CASE("static: with a torchrun agent on the other side each node restarts its own workers") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  auto first = open_rendezvous(loop, static_node(port, 0));
  std::string assigned;
  std::atomic<bool> through = false;
  // These are the requests of torchrun's agent with node rank 1.
  std::jthread torchrun([&] {
    const auto deadline = Deadline::in(20s);
    auto store = std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1", .port = port}, deadline);
    store->join(deadline);
    PrefixStore job("none", store);
    job.set("torchelastic/role_info/1", R"({"role": "default", "rank": 1, "local_world_size": 3})", deadline);
    assigned = job.get("torchelastic/assigned_ranks/1", deadline);
    const std::string barrier = "torchelastic/agent/terminal_state/";
    if (job.add(barrier + "num_members", 1, deadline) == 2) job.set(barrier + "last_member", "x", deadline);
    job.get(barrier + "last_member", deadline);
    through = true;
  });
  Agent a(first->rendezvous(), "a", quick(2, 2, 1), 0);
  REQUIRE(loops.run_until([&] { return a.runs(0); }));
  CHECK(a.started->self == 0);
  CHECK(a.started->world_size == 5);
  CHECK(a.started->master_port == port);
  a.fail(3);
  REQUIRE(loops.run_until([&] { return a.runs(1); }));
  CHECK_THAT(a.proposed->reason, Catch::Contains("restart 1 of 1 of this node"));
  CHECK_FALSE(a.ended);
  a.succeed();
  REQUIRE(loops.run_until([&] { return a.ended.has_value(); }));
  CHECK(a.ended->success);
  REQUIRE(loops.run_until([&] { return through.load(); }));
  CHECK(assigned == "[2, 5, 2, 5]");
}

TEST_CASE("static: an agent can be destroyed while node rank 0 is frozen") {
  Loops loops;
  auto& loop = loops.make();
  // The server answers the handshake, and no later request.
  const auto listener = rendezvous::listen_on("127.0.0.1", 0);
  std::atomic<bool> joining = false;
  UniqueFd connection;
  std::jthread master([&] {
    const auto deadline = Deadline::in(20s);
    while (!connection && !deadline.expired()) connection = accept_next(listener.get());
    std::string hello;
    constexpr std::size_t greeting = 5 + 5 + 17 + 8, join = 1 + 13 + 8;
    const auto receive = [&](std::size_t size) {
      char byte;
      while (hello.size() < size) {
        rendezvous::receive_some(connection.get(), &byte, 1, deadline);
        hello += byte;
      }
    };
    receive(greeting);
    rendezvous::send_all(connection.get(), hello.substr(6, 4) + '\1', deadline);
    receive(greeting + join);
    joining = true;
  });
  auto second = open_rendezvous(loop, static_node(rendezvous::local_address(listener.get()).port, 1));
  JobPolicy policy = quick(2, 2);
  policy.join_timeout = 600s;
  Agent b(second->rendezvous(), "b", policy, 1);
  REQUIRE(loops.run_until([&] { return joining.load(); }));
  second.reset();  // it would otherwise block until the join timeout
}

TEST_CASE("static: an agent can be destroyed while it waits") {
  Loops loops;
  auto& loop = loops.make();
  auto second = open_rendezvous(loop, static_node(free_port(), 1));
  JobPolicy policy = quick(2, 2);
  policy.join_timeout = 600s;
  Agent b(second->rendezvous(), "b", policy, 1);
  second.reset();  // it would otherwise block until the join timeout
  CHECK_FALSE(loops.run_until([&] { return b.lost.has_value(); }, 20ms));
}

TEST_CASE("static: a missing option is named") {
  asio::io_context loop;
  CHECK_THROWS_WITH(open_rendezvous(loop, {.backend = "static"}), Catch::Contains("--node_rank"));
}

// These tests show what agents do when their server is lost, frozen or shuts down.
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/membership/session_client.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/session_agents.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

TEST_CASE("a lost server is detected at once") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  const auto port = server->port();
  SessionClient first(loop, to(port));
  Agent a(first, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
  server.reset();
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::connection_lost);
  CHECK_THAT(a.lost->what(), Catch::Contains("lost the rendezvous server at 127.0.0.1:" + std::to_string(port)));
}

TEST_CASE("a frozen server is detected after the heartbeat timeout") {
  Loops loops;
  auto& server_loop = loops.make();
  auto& loop = loops.make();
  const auto server = host(server_loop);
  SessionClient first(loop, to(server->port()));
  Agent a(first, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
  loops.freeze(server_loop);
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::connection_lost);
  CHECK_THAT(a.lost->what(), Catch::Contains("no heartbeat for 0.2 s"));
}

TEST_CASE("agents redial a lost server, and generations, ranks and restarts continue at the next one") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  const auto port = server->port();
  SessionClient first(loop, to(port, 20s)), second(loop, to(port, 20s));
  Agent a(first, "a", quick(2, 2, 3)), b(second, "b", quick(2, 2, 3));
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  a.fail(3);
  REQUIRE(loops.run_until([&] { return a.runs(1) && b.runs(1); }));
  server.reset();
  REQUIRE(loops.run_until([&] { return !a.broken.empty() && !b.broken.empty(); }));
  CHECK_THAT(a.broken, Catch::Contains("lost the rendezvous server at 127.0.0.1:" + std::to_string(port)) &&
                           Catch::Contains("trying to rejoin for 20 s"));
  CHECK_FALSE(loops.run_until([&] { return a.started || a.lost; }, 300ms));
  server = host(loop, port);
  REQUIRE(loops.run_until([&] { return a.runs(2) && b.runs(2); }));
  CHECK(a.started->self == 0);
  CHECK(a.started->restarts_used == 1);
  a.succeed();
  b.succeed();
  REQUIRE(loops.run_until([&] { return a.ended && b.ended; }));
  CHECK(a.ended->success);
}

// The lease of these jobs is long enough for the slowest machine.
JobPolicy patient(int nodes) {
  auto policy = quick(nodes, nodes, 3);
  policy.keep_alive_max_attempt = 500;
  return policy;
}

TEST_CASE("agents that keep their round while the server is lost go on in it at the next one") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  const auto port = server->port();
  SessionClient first(loop, to(port, 20s)), second(loop, to(port, 20s));
  Agent a(first, "a", patient(2)), b(second, "b", patient(2));
  a.keeps = b.keeps = true;
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  server.reset();
  REQUIRE(loops.run_until([&] { return !a.broken.empty() && !b.broken.empty(); }));
  CHECK(a.lease > 0ms);
  CHECK(a.lease <= 20s);
  a.proposed.reset();
  server = host(loop, port);
  REQUIRE(loops.run_until([&] { return a.resumed && b.resumed; }));
  CHECK(a.runs(0));
  CHECK_FALSE(a.proposed);
  a.succeed();
  b.succeed();
  REQUIRE(loops.run_until([&] { return a.ended && b.ended; }));
  CHECK(a.ended->success);
}

namespace {

// Follows the server at one address, and knows the newest set of nodes.
class FixedServer final : public ServerChoice {
 public:
  FixedServer(std::uint16_t port, bool own) : port_(port), own_(own) {}

  void begin(NodeInfo& self, const JobPolicy&) override { self.port = 1; }
  std::optional<HostPort> target() override { return HostPort{.host = "127.0.0.1", .port = port_}; }
  bool is_own(const HostPort&) const override { return own_; }
  void attempt_failed(const HostPort&) override {}
  bool session_began(const ServerName&, bool) override { return true; }
  void session_lost(Time) override { set = {}; }
  void server_silent(Time) override {}
  void server_heard() override {}
  std::optional<Time> patience_ends() const override { return std::nullopt; }
  void server_ends() override {}
  void moved(const HostPort&) override {}
  void adopt(const Round& round) override {
    set = {.version = round.electorate, .nodes = {}};
    for (const auto& member : round.members) set.nodes.push_back(member.node_id);
  }
  void confirm(ElectorateVersion version) override { confirmed = version; }
  ElectorateVersion newest() const override { return set.version; }

  NodeSet set;
  ElectorateVersion confirmed;

 private:
  std::uint16_t port_;
  bool own_;
};

}  // namespace

TEST_CASE("a server at which a round goes on has the nodes of the round confirmed, as one that forms a round has") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  const auto port = server->port();
  FixedServer own(port, true), other(port, false);
  auto options = to(port, 20s);
  options.choice = &own;
  SessionClient first(loop, options);
  options.choice = &other;
  SessionClient second(loop, options);
  Agent a(first, "a", patient(2)), b(second, "b", patient(2));
  a.keeps = b.keeps = true;
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0) && b.started->electorate == other.confirmed; }));
  server.reset();
  REQUIRE(loops.run_until([&] { return !a.broken.empty() && !b.broken.empty(); }));
  own.confirmed = other.confirmed = {};
  server = host(loop, port);
  REQUIRE(loops.run_until([&] { return a.resumed && b.resumed && other.confirmed != ElectorateVersion(); }));
  CHECK(other.set.nodes == std::vector<std::string>{"a", "b"});
  CHECK(other.set.version == other.confirmed);
}

TEST_CASE("an agent that gives up the round that it has kept leads to a new one") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  const auto port = server->port();
  SessionClient first(loop, to(port, 20s)), second(loop, to(port, 20s));
  auto policy = patient(2);
  policy.keep_alive_max_attempt = 25;  // a server waits for the round for so long
  Agent a(first, "a", policy), b(second, "b", policy);
  a.keeps = b.keeps = true;
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  server.reset();
  REQUIRE(loops.run_until([&] { return !a.broken.empty() && !b.broken.empty(); }));
  first.give_up_round();
  server = host(loop, port);
  REQUIRE(loops.run_until([&] { return a.runs(1) && b.runs(1); }));
  CHECK_FALSE(a.resumed);
  CHECK_FALSE(b.resumed);
  CHECK_THAT(b.broken, Catch::Contains("not all nodes of the round were back in time for the workers to go on"));
  CHECK(b.lease == 0ms);
}

TEST_CASE("the lease of a round ends without a server, and there is none after missing heartbeats or for a lost node") {
  Loops loops;
  auto& server_loop = loops.make();
  auto& agent_loop = loops.make();
  auto server = host(server_loop);
  SessionClient client(agent_loop, to(server->port(), 20s));
  Agent a(client, "a", quick(1, 2));
  a.keeps = true;
  REQUIRE(loops.run_until([&] { return a.runs(0); }));
  SECTION("without a server") {
    server.reset();
    REQUIRE(loops.run_until([&] { return !a.broken.empty(); }));
    REQUIRE(loops.run_until([&] { return a.broken.find("no server was back in time") != std::string::npos; }));
    CHECK(a.lease == 0ms);
  }
  SECTION("a frozen server") {
    loops.freeze(server_loop);
    REQUIRE(loops.run_until([&] { return !a.broken.empty(); }));
    CHECK(a.lease == 0ms);
  }
  SECTION("an agent that was frozen and is lost") {
    SessionClient other(server_loop, to(server->port(), 20s));
    Agent b(other, "b", quick(1, 2));
    REQUIRE(loops.run_until([&] { return a.runs(1) && b.runs(1); }));
    loops.freeze(agent_loop);
    REQUIRE(loops.run_until([&] { return b.runs(2); }));
    loops.thaw();
    REQUIRE(loops.run_until([&] { return !a.broken.empty(); }));
    CHECK(a.lease == 0ms);
  }
}

TEST_CASE("agents whose server is not restarted in time end with one line") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  SessionClient first(loop, to(server->port(), 300ms));
  Agent a(first, "a", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
  server.reset();
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::connection_lost);
  CHECK_THAT(a.lost->what(), Catch::Contains("lost the rendezvous server at 127.0.0.1:") &&
                                 Catch::Contains("did not come back within 0.3 s (--rdzv_conf=store_timeout)"));
}

TEST_CASE("a job without restarts does not wait for its server") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  SessionClient first(loop, to(server->port(), 20s));
  Agent a(first, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
  SECTION("killed") {
    server.reset();
    REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
    CHECK(a.broken.empty());
  }
  SECTION("with a shutdown message") {
    server->hub().announce_shutdown("stopped by SIGTERM");
    REQUIRE(loops.run_until([&] { return a.ended.has_value(); }));
    CHECK(a.ended->reason == "the rendezvous server shuts down: stopped by SIGTERM");
  }
}

TEST_CASE("a server that announces its shutdown is redialled, and refuses new sessions meanwhile") {
  Loops loops;
  auto& loop = loops.make();
  auto server = host(loop);
  const auto port = server->port();
  SessionClient first(loop, to(port, 20s));
  Agent a(first, "a", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
  server->hub().announce_shutdown("stopped by SIGTERM");
  REQUIRE(loops.run_until([&] { return !a.broken.empty(); }));
  CHECK_THAT(a.broken, Catch::Contains("it shuts down (stopped by SIGTERM)"));
  CHECK_FALSE(loops.run_until([&] { return a.started.has_value(); }, 300ms));
  server.reset();
  server = host(loop, port);
  CHECK(loops.run_until([&] { return a.runs(1); }));
}

TEST_CASE("an agent that was frozen and counted as lost rejoins by itself") {
  Loops loops;
  auto& loop = loops.make();
  auto& other = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port(), 20s)), second(other, to(server->port(), 20s));
  Agent a(first, "a", quick(1, 2)), b(second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 2 && b.started; }));
  loops.freeze(other);
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 1; }));
  const auto alone = a.started->generation;
  loops.thaw();
  REQUIRE(loops.run_until([&] { return b.started && b.started->generation > alone; }));
  CHECK_THAT(b.broken, Catch::Contains("counts it as lost"));
  CHECK(b.started->self == 1);
  CHECK_FALSE(b.lost);
}

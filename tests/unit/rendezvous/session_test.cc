// Real store servers and agents' sessions over loopback, all in one thread: a loop that is not polled is a frozen
// process.
#include <array>
#include <atomic>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <regex>
#include <sys/socket.h>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/backend.h"
#include "rendezvous/hosting/hosted_endpoint.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/store/prefix_store.h"
#include "rendezvous/store/tcp_socket.h"
#include "rendezvous/store/tcp_store.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"

using namespace ddprun;
using testing::free_port;
using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

JobPolicy quick(int min_nodes, int max_nodes, int max_restarts = 0) {
  return {.min_nodes = min_nodes,
          .max_nodes = max_nodes,
          .max_restarts = max_restarts,
          .last_call = 50ms,
          .join_timeout = 20s,
          .keep_alive_interval = 40ms,
          .keep_alive_max_attempt = 5};
}

// The event loops of a test; each represents a process that can be frozen.
class Loops {
 public:
  asio::io_context& make() { return *loops_.emplace_back(std::make_unique<asio::io_context>()); }
  void freeze(asio::io_context& loop) { frozen_ = &loop; }
  void thaw() { frozen_ = nullptr; }

  template <class Condition>
  bool run_until(Condition condition, std::chrono::milliseconds limit = 20s) {
    const auto deadline = Deadline::in(limit);
    while (!condition()) {
      if (deadline.expired()) return false;
      for (const auto& loop : loops_) {
        if (loop.get() == frozen_) continue;
        loop->restart();
        loop->run_for(1ms);
      }
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<asio::io_context>> loops_;
  asio::io_context* frozen_ = nullptr;
};

// An agent that is ready at once and records the events.
class Agent {
 public:
  Agent(Rendezvous& rendezvous, std::string name, const JobPolicy& policy, std::optional<int> node_rank = {})
      : rendezvous_(rendezvous), name_(name) {
    rendezvous_.join(
        {.id = name, .host = name, .nproc = 2, .node_rank = node_rank}, policy,
        [this](RendezvousEvent event) { std::visit([this](auto& one) { record(std::move(one)); }, event); });
  }

  void ask_to_leave() { rendezvous_.ask_to_leave("a trial"); }
  void succeed() { rendezvous_.report_success(started->generation); }
  void fail(int exit_code) {
    rendezvous_.report_failure(started->generation, {{.rank = 1, .host = name_, .exit_code = exit_code, .time_us = 5}},
                               Survivors::stopped);
  }
  void lose_worker(int rank) {
    rendezvous_.report_failure(started->generation, {{.rank = rank, .host = name_, .signal_number = 9, .time_us = 5}},
                               Survivors::run);
  }
  bool runs(std::int64_t generation) const { return started && started->generation == generation; }

  std::optional<RoundProposed> proposed;
  std::optional<Round> started;
  std::optional<WorkersReplaced> replaced;
  std::optional<std::string> leave_answer;
  std::optional<JobResult> ended;
  std::optional<Error> lost;
  std::string waiting;
  std::string broken;
  std::chrono::milliseconds lease{0};
  std::optional<std::int64_t> resumed;
  bool keeps = false;  // it calls keep_round() when the contact breaks

 private:
  void record(RendezvousWaiting what) { waiting = what.text; }
  void record(RoundProposed what) {
    started.reset();
    proposed = what;
    rendezvous_.ready(what.round.generation, 4242);
  }
  void record(RoundStarted what) { started = what.round; }
  void record(RoundChanged what) { started = std::move(what.round); }
  void record(RecoveryAsked what) { rendezvous_.answer_recovery(what.generation, ""); }
  void record(WorkersReplaced what) { replaced = std::move(what); }
  void record(ReplacementRefused) {}
  void record(WorkersRecoverable) {}
  void record(RoundResumed what) {
    resumed = what.generation;
    started = kept_;
  }
  void record(LeaveAnswered what) {
    leave_answer = what.refusal;
    if (what.refusal.empty()) started.reset();
  }
  void record(JobEnded what) { ended = what.result; }
  void record(ContactBroken what) {
    kept_ = std::exchange(started, std::nullopt);
    broken = what.text;
    lease = what.lease;
    if (keeps && lease > 0ms) rendezvous_.keep_round();
  }
  void record(ContactLost what) { lost = what.error; }

  Rendezvous& rendezvous_;
  std::string name_;
  std::optional<Round> kept_;
};

std::unique_ptr<HostedEndpoint> host(asio::io_context& loop, std::uint16_t port = 0) {
  auto server = std::make_unique<StoreServer>(loop, StoreServerOptions{.host = "127.0.0.1", .port = port});
  return std::make_unique<HostedEndpoint>(loop, std::move(server));
}

SessionClientOptions to(std::uint16_t port, std::chrono::milliseconds rejoin_timeout = 0ms) {
  return {.host = "127.0.0.1", .port = port, .rejoin_timeout = rejoin_timeout};
}

}  // namespace

TEST_CASE("two agents form a round, run and succeed") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(loop, to(server->port()));
  Agent a(first, "a", quick(2, 2));
  REQUIRE(loops.run_until([&] { return !a.waiting.empty(); }));
  CHECK_THAT(a.waiting, Catch::Contains("1 of 2 nodes"));
  Agent b(second, "b", quick(2, 2));
  REQUIRE(loops.run_until([&] { return a.started && b.started; }));
  CHECK(b.started->self == 1);
  CHECK(b.started->world_size == 4);
  CHECK(b.started->members[1].first_rank == 2);
  CHECK(b.started->master_addr == "127.0.0.1");
  CHECK(b.started->master_port == 4242);
  a.succeed();
  b.succeed();
  REQUIRE(loops.run_until([&] { return a.ended && b.ended; }));
  CHECK(a.ended->success);
  CHECK(loops.run_until([&] { return server->hub().sessions() == 0; }));
  CHECK(server->hub().jobs() == 0);
}

TEST_CASE("a failure restarts every node while restarts are left, then ends the job everywhere with its code") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(loop, to(server->port()));
  Agent a(first, "a", quick(2, 2, 1)), b(second, "b", quick(2, 2, 1));
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  b.fail(9);
  REQUIRE(loops.run_until([&] { return a.runs(1) && b.runs(1); }));
  CHECK_THAT(a.proposed->reason, Catch::Contains("on host b failed: exit code 9; restart 1 of 1"));
  CHECK(a.started->restarts_used == 1);
  a.fail(7);
  REQUIRE(loops.run_until([&] { return a.ended && b.ended; }));
  CHECK(b.ended->exit_code == 7);
  REQUIRE(b.ended->failures.size() == 1);
  CHECK(b.ended->failures[0].host == "a");
}

TEST_CASE("an agent leaves while the others are enough, keeps its session, and joins again over another one") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(loop, to(server->port()));
  Agent a(first, "a", quick(1, 2)), b(second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  b.ask_to_leave();
  REQUIRE(loops.run_until([&] { return b.leave_answer && a.runs(1); }));
  CHECK(b.leave_answer->empty());
  CHECK(a.proposed->reason == "node b left: a trial");
  CHECK(server->hub().sessions() == 2);
  a.ask_to_leave();
  REQUIRE(loops.run_until([&] { return a.leave_answer.has_value(); }));
  CHECK(a.leave_answer == "the job of --nnodes=1:2 has 1 node");
  Agent again(second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.runs(2) && again.runs(2); }));
  REQUIRE(loops.run_until([&] { return server->hub().sessions() == 2; }));
  again.ask_to_leave();
  REQUIRE(loops.run_until([&] { return again.leave_answer && a.runs(3); }));
  a.succeed();
  REQUIRE(loops.run_until([&] { return a.ended && again.ended; }));
  CHECK(again.ended->success);
}

TEST_CASE("a worker of one node is replaced while those of all nodes keep their processes") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(loop, to(server->port()));
  Agent a(first, "a", quick(2, 2, 2)), b(second, "b", quick(2, 2, 2));
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  b.lose_worker(3);
  REQUIRE(loops.run_until([&] { return a.replaced && b.replaced; }));
  CHECK(a.replaced->restarts_used == 1);
  REQUIRE(a.replaced->failures.size() == 1);
  CHECK(a.replaced->failures[0].rank == 3);
  b.fail(9);  // the node stops its workers
  REQUIRE(loops.run_until([&] { return a.runs(1) && b.runs(1); }));
  CHECK(a.started->restarts_used == 2);
}

namespace {

// Stands in for a server's connections.
class Sent final : public SessionSender {
 public:
  void send(SessionId session, std::string frame) override {
    last[session] = decode_server_frame(frame);
    all[session].push_back(last[session]);
  }
  void close(SessionId) override {}
  std::map<SessionId, ServerFrame> last;
  std::map<SessionId, std::vector<ServerFrame>> all;
};

}  // namespace

TEST_CASE("failures are ordered by when they were observed, whatever the clocks of their hosts say") {
  asio::io_context loop;
  Sent sent;
  MembershipHub hub(loop, sent);
  for (SessionId id : {1, 2}) {
    hub.on_open(id, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
    hub.on_frame(id, encode(NodeFrame{SessionJoin{{.id = std::to_string(id)}, quick(2, 2)}}));
  }
  for (SessionId id : {1, 2}) hub.on_frame(id, encode(NodeFrame{SessionReady{0, 1}}));
  const std::int64_t ahead = 3'600'000'000;  // the clock of node 2
  hub.on_frame(1, encode(NodeFrame{SessionFailure{.sent_us = 9'000'000,
                                                  .failures = {{.rank = 0, .exit_code = 3, .time_us = 8'900'000}}}}));
  hub.on_frame(
      2, encode(NodeFrame{SessionFailure{.sent_us = ahead + 9'000'000,
                                         .failures = {{.rank = 1, .exit_code = 4, .time_us = ahead + 2'000'000}}}}));
  CHECK(std::get<JobEnded>(sent.last.at(1)).result.exit_code == 4);
}

namespace {

// Two nodes whose sessions have these ids run a round of two ranks.
struct RunningPair {
  asio::io_context loop;
  Sent sent;
  MembershipHub hub{loop, sent};

  explicit RunningPair(const JobPolicy& policy) {
    for (const SessionId id : {1, 2}) join(id, std::to_string(id), policy);
    for (const SessionId id : {1, 2}) hub.on_frame(id, encode(NodeFrame{SessionReady{0, 1}}));
    sent.all.clear();
  }
  void join(SessionId id, const std::string& node, const JobPolicy& policy) {
    hub.on_open(id, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
    hub.on_frame(id, encode(NodeFrame{SessionJoin{{.id = node, .host = "h" + node}, policy}}));
  }
  template <class Frame>
  Frame frame(SessionId id, std::size_t index) const {
    return std::get<Frame>(sent.all.at(id).at(index));
  }
};

}  // namespace

TEST_CASE("the server passes a request on to the node of the rank, and tells of its loss before it ends the job") {
  RunningPair pair(quick(2, 2));
  pair.hub.on_frame(1, encode(NodeFrame{FollowRank{.number = 7, .rank = 1}}));
  const auto number = pair.frame<FollowRank>(2, 0).number;
  pair.hub.on_frame(2, encode(NodeFrame{RankOutput{.number = number, .content = "line\n"}}));
  CHECK(pair.frame<RankOutput>(1, 0).number == 7);
  CHECK(pair.frame<RankOutput>(1, 0).content == "line\n");
  SECTION("by its connection") {
    pair.hub.on_close(2);
    CHECK(pair.frame<RankOutput>(1, 1).content == "host h2, which has rank 1, was lost: its connection closed");
  }
  SECTION("by its own decision") {
    pair.hub.on_frame(2, encode(NodeFrame{SessionLeave{"SIGTERM"}}));
    CHECK(pair.frame<RankOutput>(1, 1).content == "host h2, which has rank 1, left: SIGTERM");
  }
  CHECK(pair.frame<JobEnded>(1, 2).result.exit_code == 1);
}

TEST_CASE("a new session of a node knows no requests, and gets those of others in the next round") {
  const auto policy = quick(2, 2, 1);
  RunningPair pair(policy);
  pair.hub.on_frame(1, encode(NodeFrame{FollowRank{.number = 7, .rank = 1}}));
  pair.hub.on_frame(2, encode(NodeFrame{FollowRank{.number = 7, .rank = 0}}));
  pair.join(3, "2", policy);
  CHECK(pair.frame<UnfollowRank>(1, 2).number == pair.frame<FollowRank>(1, 0).number);
  CHECK(pair.frame<RankOutput>(1, 1).content == "host h2, which has rank 1, opened a new session");
  pair.sent.all.clear();
  for (const SessionId id : {1, 3}) pair.hub.on_frame(id, encode(NodeFrame{SessionReady{1, 1}}));
  REQUIRE(pair.sent.all.at(3).size() == 2);
  CHECK(pair.frame<SessionStarted>(3, 0).generation == 1);
  CHECK(pair.frame<FollowRank>(3, 1).rank == 1);
  CHECK(pair.frame<FollowRank>(3, 1).again);
  CHECK(pair.sent.all.at(1).size() == 1);
}

TEST_CASE("a report with invalid times reaches the job result with valid ones") {
  asio::io_context loop;
  Sent sent;
  MembershipHub hub(loop, sent);
  hub.on_open(1, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
  hub.on_frame(1, encode(NodeFrame{SessionJoin{{.id = "1"}, quick(1, 1)}}));
  hub.on_frame(1, encode(NodeFrame{SessionReady{0, 1}}));
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  hub.on_frame(1, encode(NodeFrame{SessionFailure{.failures = {{.rank = 0, .exit_code = 3, .time_us = most},
                                                               {.rank = 1, .exit_code = 4, .time_us = 0}}}}));
  for (const auto& failure : std::get<JobEnded>(sent.last.at(1)).result.failures)
    CHECK((failure.time_us >= 0 && failure.time_us < most / 2));
}

TEST_CASE("when an agent's connection closes the others form a new round") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port()));
  auto second = std::make_unique<SessionClient>(loop, to(server->port()));
  Agent a(first, "a", quick(1, 2)), b(*second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 2; }));
  const auto generation = a.started->generation;
  second.reset();
  REQUIRE(loops.run_until([&] { return a.runs(generation + 1); }));
  CHECK_THAT(a.proposed->reason, Catch::Contains("node b was lost: its connection closed"));
  CHECK(a.started->members.size() == 1);
}

TEST_CASE("an agent that leaves sends a reason") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port()));
  auto second = std::make_unique<SessionClient>(loop, to(server->port()));
  Agent a(first, "a", quick(1, 2)), b(*second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 2; }));
  second->leave("SIGTERM");
  second.reset();
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 1; }));
  CHECK(a.proposed->reason == "node b left: SIGTERM");
}

TEST_CASE("a frozen agent counts as lost, is notified when it resumes, and may rejoin") {
  Loops loops;
  auto& loop = loops.make();
  auto& other = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(other, to(server->port()));
  Agent a(first, "a", quick(1, 2)), b(second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 2 && b.started; }));
  loops.freeze(other);
  REQUIRE(loops.run_until([&] { return a.started && a.started->members.size() == 1; }));
  CHECK_THAT(a.proposed->reason, Catch::Contains("no heartbeat for 0.2 s"));
  loops.thaw();
  REQUIRE(loops.run_until([&] { return b.lost.has_value(); }));
  CHECK(b.lost->code() == Errc::peer_lost);
  CHECK_THAT(b.lost->what(), Catch::Contains("counts it as lost"));
  Agent again(second, "b", quick(1, 2));
  REQUIRE(loops.run_until([&] { return again.started && a.started && a.started->members.size() == 2; }));
  CHECK(again.started->self == 1);
}

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

TEST_CASE("a server that was frozen for a while drops no node when it resumes") {
  Loops loops;
  auto& server_loop = loops.make();
  auto& loop = loops.make();
  const auto server = host(server_loop);
  JobPolicy many_attempts = quick(2, 2);
  many_attempts.keep_alive_max_attempt = 50;
  SessionClient first(loop, to(server->port())), second(loop, to(server->port()));
  Agent a(first, "a", many_attempts), b(second, "b", many_attempts);
  REQUIRE(loops.run_until([&] { return a.runs(0) && b.runs(0); }));
  loops.freeze(server_loop);
  CHECK_FALSE(loops.run_until([] { return false; }, 1s));
  loops.thaw();
  a.succeed();
  b.succeed();
  REQUIRE(loops.run_until([&] { return a.ended && b.ended; }));
  CHECK(a.ended->success);
}

TEST_CASE("agents may start before their server") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  SessionClient first(loop, to(port));
  Agent a(first, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return !a.waiting.empty(); }));
  CHECK_THAT(a.waiting, Catch::Contains("no rendezvous server at 127.0.0.1:" + std::to_string(port)) &&
                            Catch::Contains("Connection refused"));
  const auto server = host(loop, port);
  REQUIRE(loops.run_until([&] { return a.started.has_value(); }));
}

TEST_CASE("an agent whose timeout expires before an answer withdraws its JOIN") {
  asio::io_context loop;
  asio::ip::tcp::acceptor server(loop, {asio::ip::address_v4::loopback(), 0});
  std::optional<SessionClient> client(std::in_place, loop, to(server.local_endpoint().port()));
  client->join({.id = "a", .host = "a"}, JobPolicy{}, [](const RendezvousEvent&) {});
  asio::ip::tcp::socket peer(loop);
  bool heard = false;
  server.async_accept(peer, [&](boost::system::error_code) {
    peer.async_wait(asio::ip::tcp::socket::wait_read, [&](boost::system::error_code) { heard = true; });
  });
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!heard && std::chrono::steady_clock::now() < deadline) loop.run_one_for(1s);
  REQUIRE(heard);
  client.reset();
  char byte = 0;
  boost::system::error_code error;
  while (!error) peer.read_some(asio::buffer(&byte, 1), error);
  CHECK(error == asio::error::connection_reset);
}

TEST_CASE("without a server the error names the endpoint, the time and the cause") {
  Loops loops;
  auto& loop = loops.make();
  const auto port = free_port();
  SessionClient first(loop, to(port));
  JobPolicy policy = quick(1, 1);
  policy.join_timeout = 200ms;
  Agent a(first, "a", policy);
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::timeout);
  CHECK_THAT(a.lost->what(),
             Catch::Contains("127.0.0.1:" + std::to_string(port)) && Catch::Contains("Connection refused"));
  CHECK(std::regex_search(a.lost->what(), std::regex(" within [0-9.]+ s \\(")));
}

TEST_CASE("an agent of another version is refused by name") {
  struct Sender final : SessionSender {
    void send(SessionId, std::string frame) override { sent.push_back(std::move(frame)); }
    void close(SessionId session) override { closed.push_back(session); }
    std::vector<std::string> sent;
    std::vector<SessionId> closed;
  };
  asio::io_context loop;
  Sender sender;
  MembershipHub hub(loop, sender);
  std::string join = encode(NodeFrame{SessionJoin{{.id = "a", .host = "a"}, quick(1, 1)}});
  join[1] = 99;  // the version follows the kind
  hub.on_open(1, {});
  hub.on_frame(1, join);
  REQUIRE(sender.sent.size() == 1);
  const auto answer = decode_server_frame(sender.sent[0]);
  REQUIRE(std::holds_alternative<JoinRefused>(answer));
  CHECK_THAT(std::get<JoinRefused>(answer).text, Catch::Contains("the agent has version 99"));
  CHECK(sender.closed == std::vector<SessionId>{1});
}

TEST_CASE("the error for a store without sessions says so") {
  Loops loops;
  auto& loop = loops.make();
  StoreServer plain(loop, {.host = "127.0.0.1"});
  SessionClient first(loop, to(plain.port()));
  JobPolicy policy = quick(1, 1);
  policy.join_timeout = 200ms;
  Agent a(first, "a", policy);
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK_THAT(a.lost->what(), Catch::Contains("closed the connection without opening a session"));
}

TEST_CASE("the error for another program's server at the endpoint shows what it sent") {
  Loops loops;
  auto& loop = loops.make();
  tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
  tcp::socket answered(loop);
  acceptor.async_accept(answered, [&](boost::system::error_code) {
    asio::write(answered, asio::buffer(std::string_view("HTTP/1.1 400 Bad Request\r\n\r\n")));
  });
  SessionClient client(loop, to(acceptor.local_endpoint().port()));
  Agent a(client, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::protocol);
  CHECK_THAT(a.lost->what(),
             Catch::Contains(
                 "is not a rendezvous server: it sent 'HTTP/1.1 400 Bad Request\\x0d\\x0a\\x0d\\x0a'; does another"));
}

TEST_CASE("a server that accepts connections without answering is distinguished from a missing one") {
  Loops loops;
  auto& loop = loops.make();
  const tcp::acceptor silent(loop, {asio::ip::make_address("127.0.0.1"), 0});  // the kernel accepts for it
  SessionClient client(loop, to(silent.local_endpoint().port()));
  auto policy = quick(1, 1);
  policy.join_timeout = 200ms;
  Agent a(client, "a", policy);
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::timeout);
  CHECK_THAT(a.lost->what(), Catch::Contains("(it accepts the connection but does not answer)"));
}

TEST_CASE("a node with other options is refused and the job continues") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(loop, to(server->port())), third(loop, to(server->port()));
  Agent a(first, "a", quick(2, 2)), c(third, "c", quick(3, 3));
  REQUIRE(loops.run_until([&] { return c.lost.has_value(); }));
  CHECK(c.lost->code() == Errc::usage);
  CHECK_THAT(c.lost->what(), Catch::Contains("--nnodes 3 where the job has 2"));
  Agent b(second, "b", quick(2, 2));
  CHECK(loops.run_until([&] { return a.started && b.started; }));
}

TEST_CASE("two jobs with different ids share a server, and an id is free again after its job result") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient first(loop, to(server->port())), second(loop, to(server->port())), third(loop, to(server->port()));
  JobPolicy other = quick(1, 1);
  other.run_id = "other";
  Agent a(first, "a", quick(1, 1)), b(second, "b", other);
  REQUIRE(loops.run_until([&] { return a.started && b.started; }));
  a.succeed();
  Agent c(third, "c", quick(1, 3));
  REQUIRE(loops.run_until([&] { return a.ended && c.started; }));
  CHECK(c.started->generation == 0);
  CHECK_FALSE(b.ended);
}

// ---- back ends

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

// ---- another rendezvous at the endpoint

// PyTorch's server closes a connection that sends SESSION, and answers CHECK of ddprun's probe with "not all present".
TEST_CASE("PyTorch's store server at the endpoint is recognised, and the agent does not redial") {
  Loops loops;
  auto& loop = loops.make();
  const auto listener = rendezvous::listen_on("127.0.0.1", 0);
  std::jthread torch([&](const std::stop_token& stop) {
    const auto deadline = Deadline::in(20s);
    const auto next_connection = [&] {
      UniqueFd connection;
      while (!connection && !stop.stop_requested() && !deadline.expired())
        connection = rendezvous::accept_from(listener.get());
      return connection;
    };
    std::array<char, 4096> buffer{};
    const auto first = next_connection();
    std::size_t size = 0;
    constexpr std::size_t validate = 5;
    while (size <= validate)  // until SESSION's opcode has arrived
      size += rendezvous::receive_some(first.get(), buffer.data(), buffer.size(), deadline);
    ::shutdown(first.get(), SHUT_WR);
    const auto second = next_connection();
    std::string requests;
    constexpr std::size_t ping = validate + 1, probe = validate + 5 + 1 + 8 + 8 + 8;
    while (requests.size() < probe)
      requests.append(buffer.data(), rendezvous::receive_some(second.get(), buffer.data(), buffer.size(), deadline));
    rendezvous::send_all(second.get(), requests.substr(ping, 4) + '\1', deadline);
  });
  SessionClient client(loop, to(rendezvous::local_address(listener.get()).port));
  Agent a(client, "a", quick(2, 2));
  REQUIRE(loops.run_until([&] { return a.lost.has_value(); }));
  CHECK(a.lost->code() == Errc::usage);
  CHECK_THAT(a.lost->what(), Catch::Contains("is served by torchrun or PyTorch") &&
                                 Catch::Contains("set --rdzv_backend=static and --node_rank on every node"));
}

TEST_CASE("a job that has formed is not affected by a torchrun agent of its run id, which is refused") {
  Loops loops;
  auto& loop = loops.make();
  const auto server = host(loop);
  SessionClient client(loop, to(server->port()));
  Agent a(client, "a", quick(1, 1));
  REQUIRE(loops.run_until([&] { return a.runs(0); }));
  auto refused = std::async(std::launch::async, [port = server->port()] {
    TcpStore torchrun({.host = "127.0.0.1", .port = port}, Deadline::in(20s));
    try {
      torchrun.compare_set("torch.rendezvous.none", "", "x", Deadline::in(20s));
      return false;
    } catch (const Error& error) {
      return error.code() == Errc::connection_lost;
    }
  });
  REQUIRE(loops.run_until([&] { return refused.wait_for(0s) == std::future_status::ready; }));
  CHECK(refused.get());
  a.succeed();
  REQUIRE(loops.run_until([&] { return a.ended.has_value(); }));
  CHECK(a.ended->success);
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
    while (!connection && !deadline.expired()) connection = rendezvous::accept_from(listener.get());
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

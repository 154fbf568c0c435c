#include <array>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/membership/session_protocol.h"
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
using asio::ip::tcp;

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

// ---- no server, or something else at its endpoint

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

// PyTorch's server closes a connection that sends SESSION, and answers CHECK of ddprun's probe with "not all present".
TEST_CASE("PyTorch's store server at the endpoint is recognised, and the agent does not redial") {
  Loops loops;
  auto& loop = loops.make();
  const auto listener = rendezvous::listen_on("127.0.0.1", 0);
  std::jthread torch([&](const std::stop_token& stop) {
    const auto deadline = Deadline::in(20s);
    const auto next_connection = [&] {
      UniqueFd connection;
      while (!connection && !stop.stop_requested() && !deadline.expired()) connection = accept_next(listener.get());
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

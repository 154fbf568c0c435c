// The server's right to decide: what a hub does while its job's nodes do not support it.
#include "rendezvous/membership/membership_hub.h"

#include <map>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/deadline.h"
#include "rendezvous/membership/session_protocol.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

// A server lacks support 0.875 s after the nodes' last acknowledgements, and gives up half a minute later.
JobPolicy policy() {
  return {.min_nodes = 2, .max_nodes = 3, .last_call = 0ms, .keep_alive_interval = 500ms, .keep_alive_max_attempt = 60};
}

// Three nodes of a job whose first one has the server, and what that has sent them, by session.
class ThreeNodes final : public SessionSender {
 public:
  ThreeNodes() {
    for (SessionId id = 1; id <= 3; ++id) {
      const auto name = std::string(1, static_cast<char>('a' + id - 1));
      hub.on_open(id, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
      send_to_hub(id, SessionJoin{{.id = name, .host = name, .port = 1, .serves = id == 1}, policy()});
    }
  }

  void send(SessionId session, std::string frame) override { sent[session].push_back(decode_server_frame(frame)); }
  void close(SessionId) override {}
  void send_to_hub(SessionId id, const NodeFrame& frame) { hub.on_frame(id, encode(frame)); }

  template <class Frame>
  std::vector<Frame> received(SessionId id) const {
    std::vector<Frame> found;
    for (const auto& frame : sent.at(id))
      if (const auto* one = std::get_if<Frame>(&frame)) found.push_back(*one);
    return found;
  }
  // The node acknowledges the last thing that the server said of itself.
  void acknowledge(SessionId id) {
    send_to_hub(id, SessionSeen{.sent_us = received<SessionServer>(id).back().sent_us,
                                .known = received<RoundProposed>(id).back().round.electorate});
  }
  void lose_support() {
    const auto before = received<SessionServer>(2).size();
    const auto deadline = Deadline::in(20s);
    while (received<SessionServer>(2).size() == before && !deadline.expired()) loop.run_one_for(1s);
    REQUIRE(received<SessionServer>(2).size() > before);
  }

  boost::asio::io_context loop;
  std::map<SessionId, std::vector<ServerFrame>> sent;
  MembershipHub hub{loop, *this};
};

}  // namespace

TEST_CASE("a server that lacks support asks the nodes for it, and decides on what has come once it has it") {
  ThreeNodes job;
  for (const SessionId id : {2, 3}) job.acknowledge(id);
  const auto rounds = job.received<RoundProposed>(2).size();
  job.lose_support();
  CHECK_FALSE(job.received<SessionServer>(2).back().decides);
  job.send_to_hub(3, SessionLeave{"a signal"});
  job.hub.on_close(3);
  CHECK(job.received<RoundProposed>(2).size() == rounds);
  CHECK_FALSE(job.hub.decides("none"));
  CHECK(job.hub.serves("none"));
  job.acknowledge(2);
  REQUIRE(job.received<RoundProposed>(2).size() == rounds + 1);
  CHECK(job.received<RoundProposed>(2).back().reason == "node c left: a signal");
  CHECK(job.hub.decides("none"));
}

TEST_CASE("a stop that a node asks for while the server lacks support ends the job once it has that") {
  ThreeNodes job;
  for (const SessionId id : {2, 3}) job.acknowledge(id);
  job.lose_support();
  job.send_to_hub(3, StopRequest{"none", "root on host c"});
  CHECK(job.received<JoinRefused>(3).empty());
  CHECK(job.received<JobEnded>(3).empty());
  job.acknowledge(2);
  CHECK(job.received<JobEnded>(2).size() == 1);
  CHECK(job.received<JobEnded>(3).size() == 1);
}

TEST_CASE("a node that has left while the server lacked support, and joined again, is in the job by its new session") {
  ThreeNodes job;
  for (const SessionId id : {2, 3}) job.acknowledge(id);
  job.lose_support();
  job.send_to_hub(3, SessionLeave{"a signal"});
  job.hub.on_close(3);
  job.hub.on_open(4, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
  job.send_to_hub(4, SessionJoin{{.id = "c", .host = "c", .port = 1}, policy()});
  job.acknowledge(2);
  REQUIRE_FALSE(job.received<RoundProposed>(4).empty());
  CHECK(job.received<RoundProposed>(4).back().round.members.size() == 3);
}

TEST_CASE("a server that lacks support answers heartbeats, and takes no node") {
  ThreeNodes job;
  for (const SessionId id : {2, 3}) job.acknowledge(id);
  job.lose_support();
  job.send_to_hub(2, SessionBeat{});
  CHECK(job.received<ServerBeat>(2).size() == 1);
  job.hub.on_open(4, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
  job.send_to_hub(4, SessionJoin{{.id = "d", .host = "d", .port = 1}, policy()});
  CHECK(job.received<RendezvousWaiting>(4).empty());
  job.acknowledge(2);
  CHECK(job.received<RendezvousWaiting>(4).size() == 1);
}

namespace {

// The elected server of a job of five nodes: the first node had the server before, the second one has been elected, and
// the third and the fourth one have joined. It waits only for nodes that are known to live.
class ElectedServer final : public SessionSender {
 public:
  void begin() {
    auto policy = ::policy();
    policy.max_nodes = 5;
    electorate.adopt({.version = {0, 1}, .nodes = {"a", "b", "c", "d", "e"}}, {});
    electorate.confirm({0, 1});
    electorate.begin_term(1, true);
    hub.serve_elected(policy, {.node = "b", .term = 1, .inherited = {0, 1}}, electorate);
  }
  void join(const std::string& node) {
    auto policy = ::policy();
    policy.max_nodes = 5;
    const auto id = static_cast<SessionId>(node[0]);
    hub.on_open(id, {.peer_address = "127.0.0.1", .local_address = "127.0.0.1"});
    hub.on_frame(id, encode(NodeFrame{SessionJoin{{.id = node, .host = node, .port = 1}, policy}}));
    for (const auto& frame : std::vector(sent[id]))
      if (const auto* server = std::get_if<SessionServer>(&frame))
        hub.on_frame(id,
                     encode(NodeFrame{SessionSeen{.sent_us = server->sent_us, .known = electorate.newest().version}}));
  }
  // Returns the number of nodes in the first round that this one was in; 0: there was none.
  std::size_t first_round_of(const std::string& node) {
    for (const auto& frame : sent[static_cast<SessionId>(node[0])])
      if (const auto* proposed = std::get_if<RoundProposed>(&frame)) return proposed->round.members.size();
    return 0;
  }

  void send(SessionId session, std::string frame) override { sent[session].push_back(decode_server_frame(frame)); }
  void close(SessionId) override {}

  Electorate electorate;
  boost::asio::io_context loop;
  std::map<SessionId, std::vector<ServerFrame>> sent;
  MembershipHub hub{loop, *this, {.job = {.gather = 0ms}}};
};

}  // namespace

TEST_CASE("an elected server waits longer for a node that is known to live, and for none that has ended") {
  ElectedServer server;
  server.begin();
  for (const auto* node : {"b", "c"}) server.join(node);
  SECTION("a node of which nothing is known") {
    server.join("d");
    CHECK(server.first_round_of("b") == 3);
  }
  SECTION("a node that lives") {
    server.hub.node_lives("none", "e");
    server.join("d");
    CHECK(server.first_round_of("b") == 0);
    server.hub.node_ended("none", "a");
    server.join("e");
    CHECK(server.first_round_of("b") == 4);
  }
  SECTION("a node that was known to live, and has ended since") {
    server.hub.node_lives("none", "e");
    server.join("d");
    CHECK(server.first_round_of("b") == 0);
    for (const auto* node : {"a", "e"}) server.hub.node_ended("none", node);
    CHECK(server.first_round_of("b") == 3);
  }
}

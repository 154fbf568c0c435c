#include "launcher/attach/attached_clients.h"

#include <chrono>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/deadline.h"
#include "launcher/attach/attach_protocol.h"
#include "launcher/attach/follower_queue.h"
#include "launcher/attach/remote_signals.h"
#include "tests/support/catch.h"

// Followers of a rank on this node and on others: what is queued for them, and which messages go to other nodes.
using namespace ddprun;

namespace {

using Kind = AttachFrame::Kind;
using OutputKind = RankOutput::Kind;

constexpr auto out = Console::Stream::out;

// An agent that has the ranks 0 and 1, as long as nothing else is said.
struct Node {
  boost::asio::io_context loop;
  std::vector<RelayMessage> sent;
  std::string no_relay;
  int first_rank = 0;
  AttachedClients clients{loop,
                          {.refusal = [this](int rank) -> std::string {
                             return rank >= first_rank && rank < first_rank + 2 ? "" : "it is not on this node";
                           },
                           .unseen = [](int) { return std::vector<UnseenStream>{}; },
                           .relay =
                               [this](const RelayMessage& message) {
                                 if (no_relay.empty()) sent.push_back(message);
                                 return no_relay;
                               }}};

  template <class Message>
  std::vector<Message> take() {
    std::vector<Message> found;
    for (const auto& message : std::exchange(sent, {}))
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    return found;
  }
  // Runs until a message has been sent.
  void run_until_sent() {
    loop.restart();
    const auto deadline = Deadline::in(std::chrono::seconds(10));
    while (sent.empty() && !deadline.expired()) loop.run_one_until(*deadline.when());
  }
  // The contents of what was sent to followers elsewhere since the last call.
  std::string take_output() {
    std::string text;
    for (const auto& output : take<RankOutput>()) text += output.content;
    return text;
  }
  // Runs what is ready.
  void run() {
    loop.restart();
    loop.poll();
  }
};

// The other end of a control connection.
struct Reader {
  UniqueFd connection;
  AttachFrames frames;

  explicit Reader(Node& node, int rank) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    connection = UniqueFd(ends[0]);
    node.clients.attach(rank, UniqueFd(ends[1]));
  }
  std::vector<AttachFrame> read() {
    char block[65536];
    for (ssize_t got = 0; (got = ::read(connection.get(), block, sizeof(block))) > 0;)
      frames.feed({block, static_cast<std::size_t>(got)});
    std::vector<AttachFrame> found;
    while (auto frame = frames.next()) found.push_back(std::move(*frame));
    return found;
  }
};

AttachFrame only(const std::vector<AttachFrame>& frames) {
  REQUIRE(frames.size() == 1);
  return frames.front();
}

}  // namespace

TEST_CASE("a queue joins small pieces of one stream and splits large ones") {
  FollowerQueue queue(3);
  queue.add(Kind::out, "a");
  queue.add(Kind::out, "b");
  queue.add(Kind::err, "c");
  queue.add(Kind::out, std::string(RelayLimits::piece + 1, 'd'));
  CHECK(queue.next()->content == "ab");
  CHECK(queue.next_bytes() == 1);
  CHECK(queue.next()->kind == Kind::err);
  CHECK(queue.next()->content.size() == RelayLimits::piece);
  CHECK(queue.next()->content == "d");
  CHECK(queue.empty());
  CHECK_FALSE(queue.next());
}

TEST_CASE("a queue leaves out what does not fit, and says how much where it is missing") {
  FollowerQueue queue(3, 10);
  queue.add(Kind::out, "12345678");
  queue.add(Kind::out, "abc");
  queue.add(Kind::err, "defg");
  CHECK(queue.next()->content == "12345678");
  CHECK_FALSE(queue.empty());
  queue.add(Kind::out, "xy");
  const auto notice = queue.next();
  CHECK(notice->kind == Kind::notice);
  CHECK(notice->content == "7 bytes of rank 3's output are left out here: they were not read in time");
  CHECK(queue.next()->content == "xy");
  queue.add(Kind::out, "a line that is too long");
  queue.add_last(Kind::end, "0");
  queue.add(Kind::out, "after");
  CHECK(queue.next()->kind == Kind::notice);
  CHECK(queue.next()->kind == Kind::end);
  CHECK(queue.closed());
  CHECK(queue.empty());
}

TEST_CASE("a follower elsewhere gets the last lines of a rank, then what it writes") {
  Node node;
  node.clients.feed(1, out, "before\n");
  node.clients.received(FollowRank{.number = 9, .rank = 1});
  node.clients.feed(0, out, "of another rank\n");
  node.clients.feed(1, Console::Stream::err, "after\n");
  const auto before = node.take<RankOutput>();
  REQUIRE(before.size() == 1);
  CHECK(before[0].number == 9);
  CHECK(before[0].content == "before\n");
  node.run_until_sent();
  const auto after = node.take<RankOutput>();
  REQUIRE(after.size() == 1);
  CHECK(after[0].kind == OutputKind::err);
  CHECK(after[0].content == "after\n");
  node.clients.received(UnfollowRank{9});
  node.clients.feed(1, out, "more\n");
  CHECK(node.sent.empty());
}

TEST_CASE("a follower elsewhere that takes nothing has a window in flight, and more once the workers have ended") {
  Node node;
  node.clients.received(FollowRank{.number = 9, .rank = 1});
  const std::string piece(RelayLimits::piece / 2, 'x');
  for (int i = 0; i < 16; ++i) node.clients.feed(1, out, piece);
  auto bytes = node.take_output().size();
  node.run_until_sent();
  bytes += node.take_output().size();
  CHECK(bytes > RelayLimits::window / 2);
  CHECK(bytes < RelayLimits::window);
  node.loop.restart();
  node.loop.run();  // until no timer is left
  CHECK(node.sent.empty());
  node.clients.received(OutputTaken{9, static_cast<std::uint32_t>(piece.size() + 32)});
  CHECK(node.take_output().size() <= RelayLimits::piece);
  node.clients.flush();
  CHECK(node.take_output().size() > 8 * piece.size());
  for (int i = 0; i < 100; ++i) node.clients.feed(1, out, piece);
  node.clients.flush();
  CHECK(node.take_output().size() < RelayLimits::final_window);
  CHECK(node.sent.empty());
}

TEST_CASE("what is written in an interval is sent to a follower elsewhere at once") {
  Node node;
  node.clients.received(FollowRank{.number = 9, .rank = 1});
  for (int i = 0; i < 100; ++i) node.clients.feed(1, out, "x\n");
  CHECK(node.take<RankOutput>().size() == 1);
  node.run_until_sent();
  const auto rest = node.take<RankOutput>();
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].content.size() == 198);
}

TEST_CASE("a follower elsewhere of a rank that is not here, and one too many, are refused") {
  Node node;
  const auto refusal = [&](int rank) {
    node.clients.received(FollowRank{.number = 100, .rank = rank});
    const auto output = node.take<RankOutput>();
    REQUIRE(output.size() == 1);
    CHECK(output[0].number == 100);
    CHECK(output[0].kind == OutputKind::refused);
    return output[0].content;
  };
  CHECK(refusal(2) == "it is not on this node");
  for (std::uint64_t i = 0; i < AttachedClients::max_clients; ++i)
    node.clients.received(FollowRank{.number = i, .rank = 1});
  CHECK(refusal(1) == "16 clients are attached already");
  Reader reader(node, 0);
  CHECK(only(reader.read()).content == "16 clients are attached already");
  node.clients.received(UnfollowRank{3});
  Reader next(node, 0);
  node.clients.feed(0, out, "line\n");
  CHECK(only(next.read()).content == "line\n");
}

TEST_CASE("followers elsewhere go with the session, and with the rank") {
  Node node;
  node.clients.received(FollowRank{.number = 9, .rank = 1});
  SECTION("the end of the session") {
    node.clients.session_lost("lost");
  }
  SECTION("a new session") {
    node.clients.session_began();
  }
  SECTION("another place of the rank") {
    node.first_rank = 2;
    node.clients.round_started();
  }
  node.clients.feed(1, out, "more\n");
  CHECK(node.sent.empty());
}

TEST_CASE("a follower elsewhere that comes again gets the output of the round") {
  Node node;
  node.clients.feed(1, out, "former\n");
  node.clients.round_started();
  node.clients.feed(1, out, "now\n");
  node.clients.received(FollowRank{.number = 9, .rank = 1, .again = true});
  CHECK(node.take_output() == "now\n");
}

TEST_CASE("a client follows a rank of another node, and what it has read is taken") {
  Node node;
  Reader reader(node, 5);
  const auto request = node.take<FollowRank>();
  REQUIRE(request.size() == 1);
  CHECK(request[0].rank == 5);
  CHECK_FALSE(request[0].again);
  node.clients.feed(5, out, "of a former round\n");
  node.clients.received(RankOutput{request[0].number, OutputKind::err, "line\n"});
  const auto frame = only(reader.read());
  CHECK(frame.kind == Kind::err);
  CHECK(frame.content == "line\n");
  const auto taken = node.take<OutputTaken>();
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].number == request[0].number);
  CHECK(taken[0].bytes == 37);
  node.clients.received(RankOutput{request[0].number + 1, OutputKind::out, "of another\n"});
  CHECK(reader.read().empty());
  node.clients.received(RankOutput{request[0].number, OutputKind::refused, "no\n"});
  CHECK(only(reader.read()).kind == Kind::refused);
  CHECK(node.take<UnfollowRank>().empty());
}

TEST_CASE("what a client does not read is not taken") {
  Node node;
  Reader reader(node, 5);
  const auto number = node.take<FollowRank>().at(0).number;
  const std::string piece(RelayLimits::piece, 'x');
  std::size_t sent = 0, taken = 0;
  while (taken == sent) {
    node.clients.received(RankOutput{number, OutputKind::out, piece});
    sent += piece.size() + 32;
    for (const auto& message : node.take<OutputTaken>()) taken += message.bytes;
  }
  reader.read();
  node.run();
  for (const auto& message : node.take<OutputTaken>()) taken += message.bytes;
  CHECK(taken == sent);
}

TEST_CASE("the end of a client ends its request") {
  Node node;
  std::optional<Reader> reader(std::in_place, node, 5);
  const auto number = node.take<FollowRank>().at(0).number;
  reader.reset();
  node.run();
  CHECK(node.take<UnfollowRank>().at(0).number == number);
}

TEST_CASE("a client is refused where agents have no session with each other") {
  Node node;
  node.no_relay = "there is no way to another one";
  Reader reader(node, 5);
  const auto frame = only(reader.read());
  CHECK(frame.kind == Kind::refused);
  CHECK(frame.content == "it is not on this node, and there is no way to another one");
}

TEST_CASE("a client asks again in a new session, and follows its rank to another node") {
  Node node;
  Reader remote(node, 5), local(node, 1);
  const auto number = node.take<FollowRank>().at(0).number;
  node.clients.session_lost("lost the server");
  const auto notice = only(remote.read());
  CHECK(notice.kind == Kind::notice);
  CHECK(notice.content == "lost the server");
  CHECK(local.read().empty());
  node.clients.session_began();
  const auto again = node.take<FollowRank>();
  REQUIRE(again.size() == 1);
  CHECK(again[0].number == number);
  CHECK(again[0].again);
  node.first_rank = 2;
  node.clients.round_started();
  const auto moved = node.take<FollowRank>();
  REQUIRE(moved.size() == 1);
  CHECK(moved[0].rank == 1);
  CHECK(moved[0].again);
  CHECK(only(local.read()).content == "rank 1 has moved to another node");
  node.clients.received(RankOutput{moved[0].number, OutputKind::out, "there\n"});
  CHECK(only(local.read()).content == "there\n");
  CHECK(remote.read().empty());
}

TEST_CASE("the end of the job is told to the clients of this node") {
  Node node;
  Reader remote(node, 5), local(node, 1);
  node.clients.received(FollowRank{.number = 9, .rank = 1});
  node.sent.clear();
  node.clients.finish(7);
  CHECK(only(remote.read()).content == "7");
  CHECK(only(local.read()).kind == Kind::end);
  CHECK(node.sent.empty());
}

TEST_CASE("a signal for a rank of another node is answered once") {
  std::vector<RelayMessage> sent;
  std::string no_way;
  std::vector<std::string> replies;
  RemoteSignals signals([&](const RelayMessage& message) {
    sent.push_back(message);
    return no_way;
  });
  const auto ask = [&] {
    signals.ask(5, {10, "root on host a"}, [&](const auto& problem) { replies.push_back(problem); });
  };
  ask();
  REQUIRE(sent.size() == 1);
  const auto request = std::get<SignalRank>(sent[0]);
  CHECK(request.rank == 5);
  CHECK(request.signal.number == 10);
  CHECK(request.signal.who == "root on host a");
  SECTION("by the other node") {
    signals.answered({request.number + 1, "of another"});
    CHECK(replies.empty());
    signals.answered({request.number, "its worker does not run"});
    signals.answered({request.number, "again"});
    CHECK(replies == std::vector<std::string>{"its worker does not run"});
  }
  SECTION("by a new session") {
    signals.session_began();
    signals.session_began();
    CHECK(replies ==
          std::vector<std::string>{"the connection to the rendezvous server was lost; the signal may have been sent"});
  }
  SECTION("at once if it cannot be sent, or too many wait") {
    no_way = "there is no way";
    ask();
    CHECK(replies.back() == "rank 5 is not on this node, and there is no way");
    no_way.clear();
    for (std::size_t i = 1; i < RemoteSignals::max_pending; ++i) ask();
    CHECK(replies.size() == 1);
    ask();
    CHECK(replies.back() == "64 signals to ranks of other hosts have not been answered yet");
  }
}

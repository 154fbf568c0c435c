#include "rendezvous/membership/relay_table.h"

#include "tests/support/catch.h"

// Tests of the decisions of the rendezvous server about requests among the agents of a job.
using namespace ddprun;

namespace {

using Deliveries = RelayTable::Deliveries;
using OutputKind = RankOutput::Kind;

// Ranks 0 and 1 are on node a, rank 2 on node b, rank 3 on node c; hosts are named as their nodes with an h before.
Round round_of(const std::vector<std::pair<std::string, int>>& nodes) {
  Round round;
  for (const auto& [id, nproc] : nodes) {
    round.members.push_back({.node_id = id,
                             .host = "h" + id,
                             .group_rank = static_cast<int>(round.members.size()),
                             .nproc = nproc,
                             .first_rank = round.world_size});
    round.world_size += nproc;
  }
  return round;
}

Round example_round() {
  return round_of({{"a", 2}, {"b", 1}, {"c", 1}});
}

template <class Message>
Message only(const Deliveries& deliveries, const std::string& node) {
  REQUIRE(deliveries.size() == 1);
  CHECK(deliveries[0].node == node);
  REQUIRE(std::holds_alternative<Message>(deliveries[0].message));
  return std::get<Message>(deliveries[0].message);
}

void check_refusal(const Deliveries& deliveries, const std::string& node, std::uint64_t number,
                   const std::string& text) {
  const auto output = only<RankOutput>(deliveries, node);
  CHECK(output.number == number);
  CHECK(output.kind == OutputKind::refused);
  CHECK(output.content == text);
}

// A table in which node a follows rank 2 on node b under its number 7.
struct Followed {
  Round round = example_round();
  RelayTable table;
  std::uint64_t number = only<FollowRank>(table.received("a", FollowRank{.number = 7, .rank = 2}, &round), "b").number;

  Deliveries output(const std::string& node, std::uint64_t of, const std::string& content,
                    OutputKind kind = OutputKind::out) {
    return table.received(node, RankOutput{of, kind, content}, &round);
  }
};

}  // namespace

TEST_CASE("a request for a rank goes to its node, and what that sends to the one who asked") {
  Followed f;
  const auto output = only<RankOutput>(f.output("b", f.number, "line\n", OutputKind::err), "a");
  CHECK(output.number == 7);
  CHECK(output.kind == OutputKind::err);
  CHECK(output.content == "line\n");
  const auto taken = only<OutputTaken>(f.table.received("a", OutputTaken{7, 37}, &f.round), "b");
  CHECK(taken.number == f.number);
  CHECK(taken.bytes == 37);
  CHECK(only<UnfollowRank>(f.table.received("a", UnfollowRank{7}, &f.round), "b").number == f.number);
  CHECK(f.output("b", f.number, "more\n").empty());
}

TEST_CASE("each rank is looked for on the node that has it") {
  const auto round = example_round();
  RelayTable table;
  const std::vector<std::string> nodes{"a", "a", "b", "c"};
  for (int rank = 0; rank < 4; ++rank) {
    const auto number = static_cast<std::uint64_t>(rank);
    const auto deliveries = table.received("d", FollowRank{.number = number, .rank = rank}, &round);
    CHECK(only<FollowRank>(deliveries, nodes[number]).rank == rank);
  }
}

TEST_CASE("a request for a rank that no node has is refused") {
  const auto round = example_round();
  RelayTable table;
  check_refusal(table.received("a", FollowRank{.number = 7, .rank = 4}, &round), "a", 7,
                "the job has no rank 4: its ranks are 0 to 3");
  check_refusal(table.received("a", FollowRank{.number = 7, .rank = 2}, nullptr), "a", 7,
                "no worker of rank 2 runs now");
}

TEST_CASE("a refusal ends a request") {
  Followed f;
  check_refusal(f.output("b", f.number, "16 clients are attached already", OutputKind::refused), "a", 7,
                "16 clients are attached already");
  CHECK(f.output("b", f.number, "more\n").empty());
  CHECK(f.table.node_left("b", "was lost").empty());
}

TEST_CASE("a node can neither answer nor end what does not concern it") {
  Followed f;
  CHECK(f.output("c", f.number, "false\n").empty());
  CHECK(f.output("b", f.number + 1, "false\n").empty());
  CHECK(f.table.received("c", UnfollowRank{7}, &f.round).empty());
  CHECK(f.table.received("c", OutputTaken{7, 10}, &f.round).empty());
  CHECK(f.table.received("b", SignalAnswer{f.number, "no"}, &f.round).empty());
  CHECK(f.output("b", f.number, "true\n").size() == 1);
}

TEST_CASE("followers of a lost node are told, and go where the next round puts the rank") {
  Followed f;
  const auto notice = only<RankOutput>(f.table.node_left("b", "was lost: its connection closed"), "a");
  CHECK(notice.number == 7);
  CHECK(notice.kind == OutputKind::notice);
  CHECK(notice.content == "host hb, which has rank 2, was lost: its connection closed");
  CHECK(f.output("b", f.number, "late\n").empty());
  const auto moved = f.table.round_started(round_of({{"a", 2}, {"c", 1}}));
  REQUIRE(moved.size() == 2);
  CHECK(std::get<RankOutput>(moved[0].message).content == "rank 2 runs on host hc now");
  CHECK(moved[1].node == "c");
  const auto request = std::get<FollowRank>(moved[1].message);
  CHECK(request.rank == 2);
  CHECK(request.again);
  CHECK(only<RankOutput>(f.output("c", request.number, "here\n"), "a").number == 7);
}

TEST_CASE("a round that leaves a rank where it is changes nothing, and one without it ends what follows it") {
  Followed f;
  CHECK(f.table.round_started(f.round).empty());
  CHECK(f.output("b", f.number, "again\n").size() == 1);
  const auto ended = f.table.round_started(round_of({{"a", 2}}));
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].node == "b");
  CHECK(std::get<UnfollowRank>(ended[0].message).number == f.number);
  CHECK(std::get<RankOutput>(ended[1].message).kind == OutputKind::refused);
  CHECK(std::get<RankOutput>(ended[1].message).content == "the job has no rank 2: its ranks are 0 to 1");
}

TEST_CASE("requests of a lost node end") {
  Followed f;
  CHECK(only<UnfollowRank>(f.table.node_left("a", "was lost"), "b").number == f.number);
  CHECK(f.output("b", f.number, "late\n").empty());
}

TEST_CASE("a node that asks again while no round runs waits for the next") {
  const auto round = example_round();
  RelayTable table;
  CHECK(table.received("a", FollowRank{.number = 7, .rank = 2, .again = true}, nullptr).empty());
  CHECK(only<FollowRank>(table.round_started(round), "b").again);
}

TEST_CASE("output that is not taken is bounded") {
  Followed f;
  const std::string piece(RelayLimits::piece, 'x');
  const std::size_t counted = relayed_bytes({.content = piece});
  std::size_t in_flight = 0;
  for (; in_flight + counted <= RelayLimits::final_window; in_flight += counted)
    CHECK(only<RankOutput>(f.output("b", f.number, piece), "a").kind == OutputKind::out);
  SECTION("more ends the request") {
    const auto ended = f.output("b", f.number, piece);
    REQUIRE(ended.size() == 2);
    CHECK(ended[0].node == "b");
    CHECK(std::holds_alternative<UnfollowRank>(ended[0].message));
    CHECK(std::get<RankOutput>(ended[1].message).content == "the agent on host hb sent more output than it may");
  }
  SECTION("what is taken may be sent again, and no more than that") {
    const auto taken = f.table.received("a", OutputTaken{7, static_cast<std::uint32_t>(10 * in_flight)}, &f.round);
    CHECK(only<OutputTaken>(taken, "b").bytes == in_flight);
    CHECK(only<RankOutput>(f.output("b", f.number, piece), "a").kind == OutputKind::out);
  }
}

TEST_CASE("what came from a former node, and from the server, gives the new one no more to send") {
  Followed f;
  f.output("b", f.number, std::string(100, 'x'));
  f.table.node_left("b", "was lost");
  const auto moved = f.table.round_started(round_of({{"a", 2}, {"c", 1}}));
  const auto number = std::get<FollowRank>(moved.back().message).number;
  const auto earlier = 132 + relayed_bytes({.content = "host hb, which has rank 2, was lost"}) +
                       relayed_bytes({.content = "rank 2 runs on host hc now"});
  CHECK(f.table.received("a", OutputTaken{7, static_cast<std::uint32_t>(earlier)}, &f.round).empty());
  f.output("c", number, std::string(8, 'x'));
  CHECK(only<OutputTaken>(f.table.received("a", OutputTaken{7, 40}, &f.round), "c").bytes == 40);
}

TEST_CASE("a signal goes to the rank's node once, and its answer comes back") {
  const auto round = example_round();
  RelayTable table;
  const SignalRank request{.number = 3, .rank = 3, .signal = {10, "root on host a"}};
  const auto passed_on = only<SignalRank>(table.received("a", request, &round), "c");
  CHECK(passed_on.rank == 3);
  CHECK(passed_on.signal.number == 10);
  CHECK(passed_on.signal.who == "root on host a");
  CHECK(table.received("b", SignalAnswer{passed_on.number, "false"}, &round).empty());
  const auto answer = only<SignalAnswer>(table.received("c", SignalAnswer{passed_on.number, "no"}, &round), "a");
  CHECK(answer.number == 3);
  CHECK(answer.problem == "no");
  CHECK(table.received("c", SignalAnswer{passed_on.number, "no"}, &round).empty());
}

TEST_CASE("a signal that reaches no node is answered by the server") {
  const auto round = example_round();
  RelayTable table;
  const auto ask = [&](int rank, const Round* now) {
    return table.received("a", SignalRank{.number = 3, .rank = rank, .signal = {10, ""}}, now);
  };
  CHECK(only<SignalAnswer>(ask(9, &round), "a").problem == "the job has no rank 9: its ranks are 0 to 3");
  CHECK(only<SignalAnswer>(ask(1, nullptr), "a").problem == "no worker of rank 1 runs now");
  only<SignalRank>(ask(3, &round), "c");
  const auto answer = only<SignalAnswer>(table.node_left("c", "was lost: its connection closed"), "a");
  CHECK(answer.problem == "host hc, which has rank 3, was lost: its connection closed");
}

TEST_CASE("the requests of a job are bounded") {
  const auto round = example_round();
  RelayTable table;
  for (std::uint64_t i = 0; i < RelayTable::max_requests; ++i)
    only<FollowRank>(table.received("a", FollowRank{.number = i, .rank = 2}, &round), "b");
  const std::string full = "the agents of the job have 256 such requests already";
  check_refusal(table.received("a", FollowRank{.number = 1000, .rank = 2}, &round), "a", 1000, full);
  const SignalRank signal{.number = 1000, .rank = 2, .signal = {10, ""}};
  CHECK(only<SignalAnswer>(table.received("a", signal, &round), "a").problem == full);
  table.received("a", UnfollowRank{0}, &round);
  only<FollowRank>(table.received("a", FollowRank{.number = 1000, .rank = 2}, &round), "b");
}

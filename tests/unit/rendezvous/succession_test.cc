// Who serves the rendezvous after its server: sets of nodes, votes, and the server's right to decide.
#include "rendezvous/succession/succession.h"

#include <variant>

#include "rendezvous/succession/electorate.h"
#include "rendezvous/succession/server_lease.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

using Names = std::vector<std::string>;
using Time = Succession::Time;

constexpr Time start{1h};
constexpr LeaseBounds bounds{.support = 2s, .patience = 4s};

Electorate::Supporters among(Names names) {
  return [names = std::move(names)](const std::string& node) { return std::ranges::count(names, node) > 0; };
}
const Electorate::Supporters none = among({});

Electorate confirmed(const Names& nodes) {
  Electorate electorate;
  electorate.adopt({.version = {0, 1}, .nodes = nodes}, {});
  electorate.confirm({0, 1});
  return electorate;
}

// A node of a job of these nodes whose server is a.
Succession follower(const std::string& self, const Names& nodes, bool survives_tie = false) {
  Succession succession({.self = self, .support_bound = 2s, .heartbeat_timeout = 5s, .survives_tie = survives_tie});
  succession.session_began(ServerName{.node = "a", .inherited = {}});
  succession.adopt({.version = {0, 1}, .nodes = nodes}, {});
  succession.confirm({0, 1});
  return succession;
}

template <class Action>
const Action* find(const SuccessionActions& actions) {
  for (const auto& action : actions)
    if (const auto* found = std::get_if<Action>(&action)) return found;
  return nullptr;
}

VoteReply granted(const VoteRequest& request) {
  return {.term = request.term, .trial = request.trial, .granted = true, .server = {}};
}

// Lets a node that has lost server a, which ended, win the vote of this node.
SuccessionActions win(Succession& node, Time now, const std::string& voter) {
  node.session_lost(now, now);
  auto actions = node.server_ended(now, "a");
  while (const auto* asked = find<AskVotes>(actions)) {
    const auto reply = granted(asked->request);
    actions = node.vote_answered(now, voter, reply);
  }
  return actions;
}

}  // namespace

TEST_CASE("a majority of the nodes elects, and half of them with the server keep it from being replaced") {
  const auto three = confirmed({"a", "b", "c"});
  CHECK(three.elects(among({"b", "c"})));
  CHECK_FALSE(three.elects(among({"b"})));
  CHECK(three.keeps("a", among({"b"}), none));
  CHECK_FALSE(three.keeps("a", none, none));
  CHECK(three.keeps("a", none, among({"c", "b"})));
  const auto two = confirmed({"a", "b"});
  CHECK_FALSE(two.elects(among({"b"})));
  CHECK(two.keeps("a", none, none));
  const auto four = confirmed({"a", "b", "c", "d"});
  CHECK_FALSE(four.elects(among({"b", "c"})));
  CHECK(four.keeps("a", among({"d"}), none));
  CHECK_FALSE(four.keeps("x", among({"a", "b"}), none));  // a server that is no node of the set
}

TEST_CASE("until a set is confirmed, an election takes a majority of the one before it too") {
  auto electorate = confirmed({"a", "b", "c", "d", "e"});
  electorate.adopt({.version = {0, 2}, .nodes = {"a", "b"}}, {0, 1});
  CHECK_FALSE(electorate.elects(among({"a", "b"})));
  CHECK_FALSE(electorate.elects(among({"c", "d", "e"})));
  CHECK(electorate.elects(among({"a", "b", "c"})));
  electorate.adopt({.version = {0, 3}, .nodes = {"a", "c"}}, {0, 1});  // in place of the second
  CHECK(electorate.elects(among({"a", "c", "d"})));
  electorate.confirm({0, 3});
  CHECK(electorate.elects(among({"a", "c"})));
  CHECK_FALSE(electorate.elects(among({"c", "d", "e"})));
}

TEST_CASE("a node that does not know the confirmed set elects nobody, until a set that it knows is confirmed") {
  Electorate electorate;
  electorate.adopt({.version = {0, 4}, .nodes = {"a", "b"}}, {0, 3});
  CHECK_FALSE(electorate.complete());
  CHECK_FALSE(electorate.elects(among({"a", "b"})));
  electorate.confirm({0, 3});
  CHECK_FALSE(electorate.complete());
  electorate.confirm({0, 4});
  CHECK(electorate.elects(among({"a", "b"})));
}

TEST_CASE("a server decides while half of the nodes have acknowledged what it sent a short time ago") {
  ServerLease lease("a", bounds);
  CHECK(lease.may_decide(start));
  const auto version = lease.adopt(start, {"a", "b", "c"});
  CHECK_FALSE(lease.take_confirmed());
  lease.acknowledged(start, "b", start, version);
  CHECK(lease.take_confirmed() == version);
  CHECK(lease.may_decide(start + 1999ms));
  lease.acknowledged(start + 1s, "c", start + 1s, version);
  CHECK(lease.may_decide(start + 2999ms));
  CHECK_FALSE(lease.may_decide(start + 3s));
}

TEST_CASE("a server that lacks support may get it again, until it has lacked it for too long") {
  ServerLease lease("a", bounds);
  const auto version = lease.adopt(start, {"a", "b", "c"});
  lease.acknowledged(start, "b", start, version);
  CHECK_FALSE(lease.may_decide(start + 3s));
  CHECK_FALSE(lease.is_over(start + 3s));
  lease.acknowledged(start + 3s, "b", start + 1s, version);  // it comes late
  CHECK_FALSE(lease.may_decide(start + 3s));
  lease.acknowledged(start + 3s, "b", start + 3s, version);
  CHECK(lease.may_decide(start + 3s));
  CHECK_FALSE(lease.is_over(start + 6999ms));
  CHECK(lease.is_over(start + 7s));
  lease.acknowledged(start + 7s, "b", start + 7s, version);
  CHECK_FALSE(lease.may_decide(start + 7s));
}

TEST_CASE("a set is not confirmed by acknowledgements that no longer count") {
  ServerLease lease("a", bounds);
  const auto first = lease.adopt(start, {"a", "b", "c", "d", "e"});
  for (const auto* node : {"b", "c"}) lease.acknowledged(start, node, start, first);
  CHECK(lease.take_confirmed() == first);
  const auto second = lease.adopt(start, {"a", "b", "c", "d"});
  lease.acknowledged(start, "b", start, second);
  lease.acknowledged(start + 3s, "c", start + 3s, second);
  CHECK_FALSE(lease.take_confirmed());
  lease.acknowledged(start + 3s, "b", start + 3s, second);
  CHECK(lease.take_confirmed() == second);
}

TEST_CASE("nodes that have ended are not counted") {
  ServerLease lease("a", bounds);
  const auto version = lease.adopt(start, {"a", "b", "c"});
  for (const auto* node : {"b", "c"}) lease.acknowledged(start, node, start, version);
  lease.ended(start, "c");
  CHECK(lease.may_decide(start + 10s));
  lease.acknowledged(start + 10s, "c", start + 10s, version);  // it has come again
  CHECK(lease.is_over(start + 20s));
}

TEST_CASE("a node that ended after its support had run out may have voted, and is counted") {
  ServerLease lease("a", bounds);
  const auto version = lease.adopt(start, {"a", "b", "c", "d", "e"});
  for (const auto* node : {"b", "c", "d"}) lease.acknowledged(start, node, start, version);
  for (const auto* node : {"c", "d", "e"}) lease.ended(start + 2s, node);
  lease.acknowledged(start + 2s, "b", start + 2s, version);
  CHECK_FALSE(lease.may_decide(start + 2s));
}

TEST_CASE("an elected server decides once a majority knows its first set, and gives up after its patience") {
  auto electorate = confirmed({"a", "b", "c", "d"});
  electorate.begin_term(1, true);
  const ServerName self{.node = "b", .term = 1, .inherited = {0, 1}};
  ServerLease lease(start, self, bounds, electorate);
  CHECK_FALSE(lease.may_decide(start));
  lease.ended(start, "a");
  lease.acknowledged(start, "c", start, {1, 1});
  CHECK_FALSE(lease.may_decide(start));  // half is enough for a server that has had a majority
  auto late = lease;
  CHECK(late.is_over(start + 4s));
  late.acknowledged(start + 4s, "d", start + 4s, {1, 1});
  CHECK_FALSE(late.may_decide(start + 4s));
  lease.acknowledged(start, "d", start, {1, 1});
  CHECK(lease.take_confirmed() == ElectorateVersion{1, 1});
  CHECK(lease.may_decide(start));
}

TEST_CASE("a server outside the round is none of its nodes, and needs more than half of them") {
  ServerLease lease("a", bounds);
  const auto version = lease.adopt(start, {"b", "c", "d"});
  CHECK(lease.electorate().newest().nodes == Names{"b", "c", "d"});
  lease.acknowledged(start, "b", start, version);
  CHECK_FALSE(lease.take_confirmed());
  lease.acknowledged(start, "c", start, version);
  CHECK(lease.take_confirmed() == version);
  lease.acknowledged(start + 1s, "b", start + 1s, version);
  CHECK_FALSE(lease.may_decide(start + 2s));
}

TEST_CASE("a server outside the round decides when all nodes of the round have ended") {
  ServerLease lease("a", bounds);
  const auto version = lease.adopt(start, {"b", "c"});
  for (const auto* node : {"b", "c"}) lease.acknowledged(start, node, start, version);
  for (const auto* node : {"b", "c"}) lease.ended(start + 1s, node);
  CHECK(lease.may_decide(start + 10s));
}

TEST_CASE("a node whose server has ended stands, asks for a trial first, and serves with a majority") {
  auto b = follower("b", {"a", "b", "c"});
  const auto lost = b.session_lost(start, start);
  REQUIRE(find<ProbeServer>(lost));
  CHECK(find<ProbeServer>(lost)->node == "a");
  const auto trial = b.server_ended(start, "a");
  REQUIRE(find<AskVotes>(trial));
  CHECK(find<AskVotes>(trial)->request == VoteRequest{.candidate = "b", .term = 1, .newest = {0, 1}, .trial = true});
  CHECK(find<AskVotes>(trial)->nodes == Names{"a", "c"});
  const auto real = b.vote_answered(start, "c", granted(find<AskVotes>(trial)->request));
  REQUIRE(find<AskVotes>(real));
  CHECK_FALSE(find<AskVotes>(real)->request.trial);
  const auto elected = b.vote_answered(start, "c", granted(find<AskVotes>(real)->request));
  REQUIRE(find<ServeJob>(elected));
  CHECK(find<ServeJob>(elected)->self == ServerName{.node = "b", .term = 1, .inherited = {0, 1}});
  CHECK(b.serving());
}

TEST_CASE("a node that is elected knows which others were heard since the server was lost") {
  auto b = follower("b", {"a", "b", "c"});
  b.vote_asked(start, {.candidate = "d", .term = 1, .newest = {0, 1}, .trial = true});
  b.session_lost(start, start);
  b.vote_asked(start, {.candidate = "e", .term = 1, .newest = {0, 0}, .trial = true});  // refused: it knows less
  const auto elected = win(b, start, "c");
  REQUIRE(find<ServeJob>(elected));
  CHECK(find<ServeJob>(elected)->living == std::set<std::string>{"c", "e"});
}

TEST_CASE("an answer to a trial is no vote") {
  auto b = follower("b", {"a", "b", "c", "d", "e"});
  b.session_lost(start, start);
  const auto trial = find<AskVotes>(b.server_ended(start, "a"))->request;
  b.vote_answered(start, "c", granted(trial));
  CHECK(find<AskVotes>(b.vote_answered(start, "d", granted(trial))));
  b.vote_answered(start, "d", granted(trial));  // again, late
  b.vote_answered(start, "e", granted(trial));
  CHECK_FALSE(b.serving());
}

TEST_CASE("a node votes once a term, and only when its server has ended or is silent for the bound of its support") {
  auto c = follower("c", {"a", "b", "c"});
  const VoteRequest request{.candidate = "b", .term = 1, .newest = {0, 1}};
  const auto refused = c.vote_asked(start, request);
  CHECK_FALSE(refused.granted);
  CHECK(refused.server == ServerName{.node = "a", .inherited = {}});
  c.session_lost(start + 1s, start);
  CHECK_FALSE(c.vote_asked(start + 1999ms, request).granted);
  CHECK(c.vote_asked(start + 2s, request).granted);
  CHECK(c.vote_asked(start + 5s, request).granted);
  CHECK(c.vote_asked(start + 5s, request).granted);
  CHECK_FALSE(c.vote_asked(start + 5s, {.candidate = "x", .term = 1, .newest = {0, 1}}).granted);
  CHECK(c.vote_asked(start + 5s, {.candidate = "x", .term = 2, .newest = {0, 1}}).granted);
  CHECK_FALSE(c.vote_asked(start + 5s, {.candidate = "x", .term = 3, .newest = {0, 0}}).granted);  // knows less
}

TEST_CASE("a node whose server is silent gives it up with a majority in the trial, and not before") {
  auto b = follower("b", {"a", "b", "c"});
  const auto silent = b.server_silent(start + 1s, start);
  CHECK_FALSE(find<AskVotes>(silent));
  const auto trial = b.tick(start + 2s);
  REQUIRE(find<AskVotes>(trial));
  CHECK(find<AskVotes>(trial)->request.trial);
  CHECK_FALSE(b.searching());
  const auto real = b.vote_answered(start + 2s, "c", granted(find<AskVotes>(trial)->request));
  REQUIRE(find<AskVotes>(real));
  CHECK_FALSE(find<AskVotes>(real)->request.trial);
  CHECK(b.searching());
  CHECK(b.take_given_up());
  CHECK_FALSE(b.take_given_up());
  CHECK(find<ServeJob>(b.vote_answered(start + 2s, "c", granted(find<AskVotes>(real)->request))));
}

TEST_CASE("a node whose server is silent votes for another, and gives it up then") {
  auto c = follower("c", {"a", "b", "c"});
  c.server_silent(start + 2s, start);
  CHECK(c.vote_asked(start + 2s, {.candidate = "b", .term = 1, .newest = {0, 1}, .trial = true}).granted);
  CHECK_FALSE(c.take_given_up());
  c.server_heard();
  CHECK_FALSE(c.vote_asked(start + 2s, {.candidate = "b", .term = 1, .newest = {0, 1}}).granted);
  c.server_silent(start + 5s, start + 3s);
  CHECK(c.vote_asked(start + 5s, {.candidate = "b", .term = 1, .newest = {0, 1}}).granted);
  CHECK(c.take_given_up());
  CHECK_FALSE(c.accepts({.node = "a", .inherited = {}}, true));
}

TEST_CASE("a node that follows a silent server follows the one that the others have elected") {
  auto c = follower("c", {"a", "b", "c"});
  CHECK(c.announced(start, {.node = "b", .term = 1, .inherited = {0, 1}}, true).empty());
  c.server_silent(start + 2s, start);
  CHECK(find<FollowServer>(c.announced(start + 2s, {.node = "b", .term = 1, .inherited = {0, 1}}, true)));
  CHECK(c.take_given_up());
}

TEST_CASE("of two nodes none survives a tie while its server is only silent") {
  auto b = follower("b", {"a", "b"}, true);
  b.server_silent(start + 2s, start);
  b.tick(start + 4s);
  CHECK_FALSE(b.serving());
}

TEST_CASE("a node follows the elected server, but no earlier one than it has voted for") {
  auto c = follower("c", {"a", "b", "c"});
  c.session_lost(start, start);
  c.server_ended(start, "a");
  REQUIRE(c.vote_asked(start, {.candidate = "b", .term = 2, .newest = {0, 1}}).granted);
  CHECK_FALSE(find<FollowServer>(c.announced(start, {.node = "x", .term = 1, .inherited = {0, 1}}, true)));
  CHECK_FALSE(c.accepts({.node = "x", .term = 1, .inherited = {0, 1}}, true));
  const auto follow = c.announced(start, {.node = "b", .term = 2, .inherited = {0, 1}}, false);
  REQUIRE(find<FollowServer>(follow));
  CHECK(c.electorate().newest().version == ElectorateVersion{2, 1});
  CHECK(c.electorate().newest().nodes == Names{"a", "b", "c"});
}

TEST_CASE("of two nodes the one without the server elects nobody, unless it survives a tie") {
  auto stops = follower("b", {"a", "b"});
  const auto actions = stops.session_lost(start, start);
  CHECK(find<TryEndpoint>(actions));
  stops.server_ended(start, "a");
  stops.tick(start + 10s);
  CHECK_FALSE(stops.serving());

  auto survives = follower("b", {"a", "b"}, true);
  survives.session_lost(start, start);
  CHECK(find<ServeJob>(survives.server_ended(start, "a")));
}

TEST_CASE("a tie is survived only by one of two nodes that know no earlier set and lost the other one") {
  auto unconfirmed = follower("b", {"a", "b", "c", "d", "e"}, true);
  unconfirmed.adopt({.version = {0, 2}, .nodes = {"a", "b"}}, {0, 1});
  unconfirmed.session_lost(start, start);
  CHECK_FALSE(find<ServeJob>(unconfirmed.server_ended(start, "a")));

  auto outside = follower("b", {"b", "c"}, true);  // the server is no node of the set
  outside.session_lost(start, start);
  CHECK_FALSE(find<ServeJob>(outside.server_ended(start, "a")));
}

TEST_CASE("a node that follows another server of the same term forgets the nodes of the first") {
  auto b = follower("b", {"a", "b", "c"});
  b.session_lost(start, start);
  b.session_began(ServerName{.node = "x", .inherited = {}});
  CHECK(b.electorate().newest().nodes.empty());
}

// Where the server of term 0 was lost with its quorum, one that knows nothing begins at the endpoint, and is elected in
// the same terms once more.
TEST_CASE("a node that follows the same server in the same term after other sets forgets the nodes of the first") {
  Succession b({.self = "b"});
  const auto follow = [&](std::uint64_t inherited) {
    b.session_began(ServerName{.node = "a", .term = 1, .inherited = {.term = 0, .number = inherited}});
  };
  follow(5);
  b.adopt({.version = {1, 10}, .nodes = {"a", "b", "c"}}, {});
  b.session_lost(start, start);
  follow(5);
  CHECK(b.electorate().newest().version == ElectorateVersion{1, 10});
  b.session_lost(start, start);
  follow(2);
  b.adopt({.version = {1, 3}, .nodes = {"a", "b"}}, {});
  CHECK(b.electorate().newest().version == ElectorateVersion{1, 3});
}

TEST_CASE("a server that is not elected by others of the job is looked for at the endpoint") {
  Succession alone({.self = "b"});
  alone.session_began(ServerName{.node = "", .inherited = {}});
  CHECK(find<TryEndpoint>(alone.session_lost(start, start)));
}

TEST_CASE("after the heartbeat timeout without an election a node tries the endpoint, and goes on asking") {
  auto b = follower("b", {"a", "b", "c"});
  b.session_lost(start, start);
  Time now = start;
  bool tried = false;
  int asked = 0;
  while (now < start + 12s) {
    now = std::max(now + 1ms, *b.next_tick());
    const auto actions = b.tick(now);
    tried |= find<TryEndpoint>(actions) != nullptr;
    if (tried) asked += find<AskVotes>(actions) != nullptr;
  }
  CHECK(tried);
  CHECK(asked > 1);
}

TEST_CASE("the next node stands after the first, which has ended too") {
  auto c = follower("c", {"a", "b", "c", "d", "e"});
  c.session_lost(start, start);
  CHECK_FALSE(find<AskVotes>(c.server_ended(start, "a")));
  const auto turn = c.next_tick();
  REQUIRE(turn);
  CHECK(find<AskVotes>(c.tick(*turn)));
}

TEST_CASE("two winners of later terms follow each other") {
  auto b = follower("b", {"a", "b", "c"});
  CHECK(find<ServeJob>(win(b, start, "c")));
  CHECK(b.server()->term == 1);
  b.stepped_down(start + 5s);
  CHECK(b.may_vote(start + 5s));
  CHECK(find<FollowServer>(b.announced(start + 5s, {.node = "c", .term = 2, .inherited = {1, 1}}, true)));
}

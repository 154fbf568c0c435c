#include "worker/comm/health/diagnosis.h"

#include <random>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

OperationDescription allreduce_of(std::uint64_t count) {
  return {.kind = "allreduce", .reduce_op = "sum", .dtype = "float32", .count = count};
}
OperationDescription send_of(std::uint64_t count, int to, int tag) {
  return {.kind = "send", .dtype = "float32", .count = count, .peer = to, .tag = tag};
}
OperationDescription recv_of(std::uint64_t count, int from, int tag) {
  return {.kind = "recv", .dtype = "float32", .count = count, .peer = from, .tag = tag};
}

RankRecord inside(std::uint64_t sequence, std::uint64_t beat, std::uint64_t count = 10) {
  return {.beat = beat, .sequence = sequence, .inside = true, .pid = 42, .host = "b", .operation = allreduce_of(count)};
}
RankRecord outside(std::uint64_t next, std::uint64_t beat) {
  auto record = inside(next, beat);
  record.inside = false;
  record.operation.reset();
  if (next > 0) record.operation = OperationDescription{};
  return record;
}
RankRecord left(std::uint64_t next, std::uint64_t beat) {
  auto record = outside(next, beat);
  record.left = true;
  return record;
}
Observation beating(RankRecord now) {
  auto before = now;
  before.beat -= 1;
  return {before, now};
}
Observation silent(const RankRecord& record) {
  return {record, record};
}

Stall stall_at(std::uint64_t sequence) {
  return {.rank = 0, .sequence = sequence, .operation = allreduce_of(10), .seconds = 5};
}

// Returns the failure of an operation of rank 0 that is overdue. observations are by rank.
GroupFailure diagnose_overdue(const Stall& stall, const std::vector<Observation>& observations, double seconds = 3) {
  const auto failure = diagnose(
      {.rank = stall.rank,
       .size = static_cast<int>(observations.size()),
       .identity = "pid 1 on host a",
       .overdue = OverdueOperation{
           .own = stall, .observations = observations, .seconds_between = seconds, .observed_long_enough = true}});
  REQUIRE(failure);
  return *failure;
}

std::optional<GroupFailure> diagnose_comparison(const Stall& own, int peer, const RankRecord& record) {
  return diagnose({.size = 4, .identity = "pid 1 on host a", .comparisons = {{own, peer, record}}});
}

// Returns the failure that the records of other ranks prove, by rank, beside a collective of rank 0. more_may_follow:
// of records.
std::optional<GroupFailure> diagnose_calls(const Stall& own, const PeerRecords& records, int size = 2,
                                           bool more_may_follow = false) {
  auto collective = own_call(own, "pid 1 on host a");
  for (const auto& [rank, record] : records) collective.add(rank, record);
  collective.more_may_follow = more_may_follow;
  return diagnose({.size = size, .collective = collective});
}

bool contains(const GroupFailure& failure, const std::string& text) {
  return failure.message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("no facts prove no failure") {
  CHECK_FALSE(diagnose({.rank = 0, .size = 4}));
}

TEST_CASE("a rank whose process ended is lost unless it had left") {
  CHECK_FALSE(diagnose({.rank = 0, .size = 3, .ended = {{1, left(4, 3)}}}));
  const auto failure = diagnose({.rank = 0, .size = 3, .ended = {{1, left(4, 3)}, {2, outside(4, 3)}}});
  CHECK(failure == failure_by_loss(2, "pid 42 on host b"));
}

TEST_CASE("a second process of this rank is a mismatch that names both") {
  const auto failure = diagnose({.rank = 1, .size = 3, .identity = "pid 7 on host a", .duplicate = outside(0, 1)});
  CHECK(failure == GroupFailure{Errc::mismatch, "two processes are rank 1: pid 7 on host a and pid 42 on host b"});
}

TEST_CASE("every rank whose heartbeats stopped is lost, with the state of its process") {
  Silence silence{.seconds = 5.5,
                  .observations = {silent(inside(4, 9)), silent(outside(4, 9)), beating(inside(4, 9)),
                                   silent(inside(4, 7)), silent(left(4, 7)), Observation{}},
                  .process_states = {{3, "its process is stopped"}}};
  const auto failure = diagnose({.rank = 0, .size = 6, .silence = silence});
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_lost);
  CHECK(failure->lost == std::vector{1, 3});
  CHECK(failure->message ==
        "rank 1 (pid 42 on host b) sent no heartbeat for 5.5 s: it is frozen or cut off; it is between operations; its "
        "last was barrier #3; rank 3 (pid 42 on host b) sent no heartbeat for 5.5 s: its process is stopped; it is "
        "still in allreduce(sum) of 10 float32 #4");
  silence.observations[1] = silence.observations[3] = beating(inside(4, 9));
  CHECK_FALSE(diagnose({.rank = 0, .size = 6, .silence = silence}));
}

TEST_CASE("a rank names its own host if all ranks of several other hosts are silent") {
  const auto on_host = [](const std::string& host, RankRecord record) {
    record.host = host;
    return record;
  };
  Silence silence{.seconds = 1,
                  .observations = {beating(on_host("a", inside(4, 9))), beating(on_host("a", inside(4, 9))),
                                   silent(on_host("b", inside(4, 9))), silent(on_host("c", inside(4, 9)))}};
  const auto message = [&] { return diagnose({.rank = 0, .size = 4, .silence = silence}).value().message; };
  CHECK(message().starts_with("host a is cut off from all others: rank 2 (pid 42 on host b) sent no heartbeat"));
  silence.observations[2] = silent(on_host("c", inside(4, 9)));  // one other host
  CHECK(message().starts_with("host c is cut off from this one, or down: rank 2 "));
  silence.observations[2] = beating(on_host("b", inside(4, 9)));  // a host that is not silent
  CHECK(message().starts_with("rank 3 "));
  silence.observations[2] = silent(on_host("b", inside(4, 9)));
  silence.observations[1] = silent(on_host("a", inside(4, 9)));  // a silent rank of the own host
  CHECK(message().starts_with("rank 1 "));
}

TEST_CASE("a host whose ranks are all silent is named, unless it has one rank, or is the own one") {
  const auto on_host = [](const std::string& host, RankRecord record) {
    record.host = host;
    return record;
  };
  Silence silence{.seconds = 1,
                  .observations = {beating(on_host("a", inside(4, 9))), silent(on_host("b", inside(4, 9))),
                                   silent(on_host("b", outside(4, 9))), beating(on_host("c", inside(4, 9)))}};
  const auto message = [&](int rank) {
    return diagnose({.rank = rank, .size = 4, .silence = silence}).value().message;
  };
  CHECK(
      message(0).starts_with("host b is cut off from this one, or down: rank 1 (pid 42 on host b) sent no heartbeat"));
  CHECK(message(2).starts_with("rank 1 "));
  silence.observations[2] = beating(on_host("b", inside(4, 9)));
  CHECK(message(0).starts_with("rank 1 "));
  silence.observations[2] = beating(on_host("c", inside(4, 9)));
  CHECK(message(0).starts_with("rank 1 "));
  silence.observations[2] = silent(on_host("c", inside(4, 9)));  // a rank of another host is silent, too
  CHECK(message(0).starts_with("rank 1 "));
}

TEST_CASE("a rank disagrees that calls another operation under a number, in it or past it") {
  auto done = outside(42, 3);  // its last was #41
  done.operation = allreduce_of(11);
  CHECK(done.newest() == 41);
  CHECK(inside(41, 3).newest() == 41);
  CHECK(RankRecord{.beat = 3}.newest() == std::nullopt);
  for (const auto& record : {inside(41, 3, 11), done}) {
    const auto failure = diagnose_calls(stall_at(41), {{1, record}});
    REQUIRE(failure);
    CHECK(*failure ==
          GroupFailure{Errc::mismatch,
                       "the ranks disagree on operation #41: rank 0 (pid 1 on host a) calls allreduce(sum) of 10 "
                       "float32; rank 1 (pid 42 on host b) calls allreduce(sum) of 11 float32"});
    CHECK_FALSE(diagnose_calls(stall_at(40), {{1, record}}));
    CHECK_FALSE(diagnose_calls(stall_at(42), {{1, record}}));
    CHECK_FALSE(diagnose_calls(stall_at(41), {{1, inside(41, 3)}}));
    CHECK(diagnose_overdue(stall_at(41), {beating(inside(41, 1)), beating(record)}) == *failure);
  }
}

TEST_CASE("a rank disagrees that called another operation some numbers ago") {
  auto ahead = inside(43, 3);
  ahead.operations = {{.sequence = 41, .state = RankOperation::State::done, .description = allreduce_of(12)},
                      {.sequence = 42, .state = RankOperation::State::done, .description = allreduce_of(10)}};
  CHECK_FALSE(diagnose_calls(stall_at(42), {{1, ahead}}));
  const auto failure = diagnose_calls(stall_at(41), {{1, ahead}});
  REQUIRE(failure);
  CHECK(failure->code == Errc::mismatch);
  CHECK(contains(*failure, "rank 1 (pid 42 on host b) calls allreduce(sum) of 12 float32"));
}

TEST_CASE("ranks agree on an exchange of unequal parts whatever the sizes of their own") {
  auto own = stall_at(41);
  own.operation = {.kind = "all_to_all", .dtype = "float32", .count = 10, .parts = 7};
  auto other = inside(41, 3);
  other.operation = {.kind = "all_to_all", .dtype = "float32", .count = 12, .parts = 9};
  CHECK_FALSE(diagnose_calls(own, {{1, other}}));
  other.operation->dtype = "int32";
  CHECK(diagnose_calls(own, {{1, other}}));
}

TEST_CASE("of ranks that call different collectives those in the minority are named first") {
  const auto message = [](const PeerRecords& records, int size) {
    return diagnose_calls(stall_at(41), records, size).value().message;
  };
  CHECK(
      message({{1, inside(41, 3)}, {2, inside(41, 3, 11)}, {3, inside(41, 3)}}, 4) ==
      "the ranks disagree on operation #41: rank 2 (pid 42 on host b) calls allreduce(sum) of 11 float32; rank 0 (pid "
      "1 on host a) and 2 others call allreduce(sum) of 10 float32");
  CHECK(
      message({{1, inside(41, 3, 11)}, {2, inside(41, 3, 11)}, {3, inside(41, 3, 12)}}, 4) ==
      "the ranks disagree on operation #41: rank 0 (pid 1 on host a) calls allreduce(sum) of 10 float32; rank 3 (pid "
      "42 on host b) calls allreduce(sum) of 12 float32; rank 1 (pid 42 on host b) and 1 other call allreduce(sum) of "
      "11 float32");
  auto barrier = inside(41, 3);
  barrier.operation = OperationDescription{};
  const auto halves = message({{1, barrier}, {2, barrier}, {3, inside(41, 3)}}, 4);
  CHECK(
      halves.starts_with("the ranks disagree on operation #41: rank 0 (pid 1 on host a), rank 3 (pid 42 on host b) "
                         "call allreduce"));
}

TEST_CASE("ranks are called odd only once the calls of others cannot change it") {
  const auto odd = inside(41, 3, 11), usual = inside(41, 3), late = outside(41, 3);
  CHECK_FALSE(diagnose_calls(stall_at(41), {{1, odd}, {2, late}}, 3, true));
  CHECK_FALSE(diagnose_calls(stall_at(41), {{1, odd}, {2, usual}, {3, late}}, 4, true));
  CHECK(diagnose_calls(stall_at(41), {{1, odd}, {2, late}}, 3, false));
  CHECK(diagnose_calls(stall_at(41), {{1, odd}, {2, usual}}, 3, true));
  CHECK(diagnose_calls(stall_at(41), {{1, odd}, {2, usual}, {3, usual}, {4, late}}, 5, true));
  const auto overdue = [&](bool calls_may_follow) {
    return diagnose({.size = 3,
                     .overdue = OverdueOperation{.own = stall_at(41),
                                                 .observations = {beating(usual), beating(odd), beating(late)},
                                                 .cause_may_follow = true,
                                                 .calls_may_follow = calls_may_follow}});
  };
  CHECK_FALSE(overdue(true));
  CHECK(overdue(false));
}

TEST_CASE("a rank that left is named rather than a silent one") {
  const auto failure =
      diagnose_overdue(stall_at(41), {beating(inside(41, 9)), silent(left(41, 3)), silent(inside(41, 4))});
  CHECK(failure.code == Errc::peer_lost);
  CHECK(contains(failure, "rank 1 (pid 42 on host b) left the group"));
  CHECK_FALSE(contains(failure, "rank 2"));
}

TEST_CASE("a silent rank is named, ranks that wait for it are not") {
  const auto failure =
      diagnose_overdue(stall_at(41), {beating(inside(41, 9)), beating(outside(41, 5)), silent(inside(41, 4))}, 3.5);
  CHECK(failure.code == Errc::peer_lost);
  CHECK(failure.lost == std::vector{2});
  CHECK(contains(failure, "rank 2 (pid 42 on host b) sent no heartbeat for 3.5 s"));
  CHECK_FALSE(contains(failure, "rank 1"));
}

TEST_CASE("a rank that never published is named") {
  const auto failure = diagnose_overdue(stall_at(0), {beating(inside(0, 9)), Observation{}});
  CHECK(failure.code == Errc::peer_lost);
  CHECK(failure.lost == std::vector{1});
  CHECK(contains(failure, "rank 1 never sent a heartbeat"));
}

TEST_CASE("of several late ranks those furthest behind are named") {
  const auto failure =
      diagnose_overdue(stall_at(41), {beating(inside(41, 9)), beating(inside(40, 5)), beating(outside(40, 5))});
  CHECK(failure.code == Errc::timeout);
  CHECK(contains(failure, "rank 2 (pid 42 on host b) has not entered it"));
  CHECK(contains(failure, "its last was barrier #39"));
  CHECK_FALSE(contains(failure, "rank 1"));
}

TEST_CASE("when all ranks are in the operation the network is the cause") {
  auto stall = stall_at(41);
  CHECK(diagnose_overdue(stall, {beating(inside(41, 9)), beating(inside(41, 5))}).code == Errc::timeout);
  stall.transport_error = "connection reset by peer";
  const auto failure = diagnose_overdue(stall, {beating(inside(41, 9)), beating(inside(41, 5))});
  CHECK(failure.code == Errc::connection_lost);
  CHECK(contains(failure, "connection reset by peer"));
}

TEST_CASE("before the observations can prove a silence, only departures and mismatches end the group") {
  const auto early = [](const Observation& other, bool cause_may_follow, bool observed_long_enough) {
    return diagnose({.size = 2,
                     .overdue = OverdueOperation{.own = stall_at(41),
                                                 .observations = {beating(inside(41, 9)), other},
                                                 .observed_long_enough = observed_long_enough,
                                                 .cause_may_follow = cause_may_follow}});
  };
  for (const auto& [cause_may_follow, observed_long_enough] : {std::pair(true, true), {false, false}}) {
    CHECK_FALSE(early(silent(inside(41, 4)), cause_may_follow, observed_long_enough));
    CHECK_FALSE(early(beating(outside(41, 4)), cause_may_follow, observed_long_enough));
    CHECK_FALSE(early(beating(inside(41, 4)), cause_may_follow, observed_long_enough));
    CHECK(early(silent(left(41, 4)), cause_may_follow, observed_long_enough)->code == Errc::peer_lost);
    CHECK(early(beating(inside(41, 4, 11)), cause_may_follow, observed_long_enough)->code == Errc::mismatch);
  }
}

TEST_CASE("a rank whose store does not answer may be cut off itself") {
  const auto failure = diagnose({.rank = 3,
                                 .size = 4,
                                 .identity = "pid 7 on host a",
                                 .overdue = OverdueOperation{.own = stall_at(41), .store_error = "no answer"}});
  REQUIRE(failure);
  CHECK(*failure == GroupFailure{Errc::connection_lost,
                                 "allreduce(sum) of 10 float32 did not complete within 5.0 s, and the store does not "
                                 "answer: rank 3 (pid 7 on host a) may be cut off (no answer)"});
}

namespace {

// Rank 0 receives the third message of its channel from rank 2.
Stall recv_from_2() {
  return {.rank = 0, .sequence = 3, .operation = recv_of(4, 2, 1), .seconds = 5};
}
RankRecord in_message(std::uint64_t number, const OperationDescription& message) {
  auto record = outside(3, 5);
  record.operations = {{.sequence = number, .state = RankOperation::State::started, .description = message}};
  return record;
}

}  // namespace

TEST_CASE("the ends of a message disagree if they differ in nothing but its elements") {
  const auto failure = diagnose_comparison(recv_from_2(), 2, in_message(3, send_of(5, 0, 1)));
  REQUIRE(failure);
  CHECK(failure->code == Errc::mismatch);
  CHECK(failure->message ==
        "rank 0 (pid 1 on host a) calls recv of 4 float32 from rank 2 with tag 1, rank 2 (pid 42 on host b) calls "
        "send of 5 float32 to rank 0 with tag 1");
  for (const auto& other :
       {in_message(3, send_of(4, 0, 1)), in_message(2, send_of(5, 0, 1)), in_message(0, send_of(5, 0, 1)),
        in_message(3, send_of(5, 0, 2)), in_message(3, send_of(5, 1, 1)), in_message(3, recv_of(5, 0, 1)),
        in_message(3, recv_of(5, -1, 1))}) {
    INFO(describe(other.operations.front().description));
    CHECK_FALSE(diagnose_comparison(recv_from_2(), 2, other));
  }
  CHECK_FALSE(diagnose_comparison(recv_from_2(), 1, in_message(3, send_of(5, 0, 1))));
  auto unnumbered = recv_from_2();
  unnumbered.sequence = 0;
  CHECK_FALSE(diagnose_comparison(unnumbered, 2, in_message(0, send_of(5, 0, 1))));
  CHECK_FALSE(diagnose_comparison(unnumbered, 2, in_message(3, send_of(5, 0, 1))));
}

TEST_CASE("a message that both ends are in is late by the network, another one by its partner") {
  const auto with = [](const RankRecord& partner) {
    return diagnose_overdue(recv_from_2(), {beating(outside(3, 5)), beating(outside(3, 5)), beating(partner)});
  };
  CHECK(contains(with(in_message(3, send_of(4, 0, 1))), "the network between them"));
  CHECK(contains(with(in_message(1, send_of(4, 0, 2))),
                 "has not called its counterpart; it is in send of 4 float32 to rank 0 with tag 2, after barrier #2"));
}

TEST_CASE("a receive from any rank is the counterpart of a send of the same elements and tag") {
  const Stall stall{.rank = 12, .operation = send_of(4, 0, 1), .seconds = 5};
  const auto in = [&](const OperationDescription& called) {
    return contains(diagnose_overdue(stall, {beating(in_message(0, called))}), "the network between them");
  };
  CHECK(in(recv_of(4, 12, 1)));
  CHECK(in(recv_of(4, -1, 1)));
  CHECK_FALSE(in(recv_of(5, -1, 1)));
  CHECK_FALSE(in(recv_of(4, -1, 2)));
  CHECK_FALSE(in(recv_of(4, 1, 1)));
}

namespace {

Stall recv_from_any() {
  return {.rank = 0, .sequence = 0, .operation = recv_of(4, -1, 1), .seconds = 5};
}
// others are the records of rank 1 and the following ones.
GroupFailure diagnose_recv_from_any(const std::vector<RankRecord>& others) {
  std::vector<Observation> observations{beating(outside(3, 5))};
  for (const auto& each : others) observations.push_back(each.left ? silent(each) : beating(each));
  return diagnose_overdue(recv_from_any(), observations);
}

}  // namespace

TEST_CASE("the timeout of a receive from any rank names what the others send to its rank") {
  const auto other = diagnose_recv_from_any({in_message(1, send_of(4, 0, 2)), outside(3, 5)});
  CHECK(other.code == Errc::timeout);
  CHECK(other.message ==
        "recv of 4 float32 from any rank with tag 1 of rank 0 did not complete within 5.0 s: no rank is in send of 4 "
        "float32 to rank 0 with tag 1: rank 1 (pid 42 on host b) is in send of 4 float32 to rank 0 with tag 2");
  const auto network = diagnose_recv_from_any({outside(3, 5), in_message(1, send_of(4, 0, 1))});
  CHECK(network.code == Errc::timeout);
  CHECK(contains(network, "rank 2 (pid 42 on host b) is in send of 4 float32 to rank 0 with tag 1: the network"));
}

TEST_CASE("the timeout of a receive from any rank to which no rank sends names what some of the others do") {
  const auto failure = diagnose_recv_from_any(
      {in_message(1, send_of(4, 10, 1)), outside(3, 5), left(3, 5), outside(3, 5), outside(3, 5), outside(3, 5)});
  CHECK(failure.code == Errc::timeout);
  CHECK(contains(failure,
                 "no rank is in a send to rank 0: rank 1 (pid 42 on host b) is in send of 4 float32 to rank 10"));
  CHECK(contains(failure, "rank 2 (pid 42 on host b) is between operations; its last was barrier #2"));
  CHECK(contains(failure, "rank 3 (pid 42 on host b) has left the group"));
  CHECK(contains(failure, "and 2 more"));
  CHECK_FALSE(contains(failure, "rank 5"));
}

TEST_CASE("a receive from any rank fails by departures only when all others have left") {
  CHECK_FALSE(all_partners_left(recv_from_any(), {{1, left(3, 5)}, {2, outside(3, 5)}}, 3));
  CHECK_FALSE(all_partners_left(recv_from_any(), {{1, left(3, 5)}}, 3));
  const PeerRecords both{{1, left(3, 5)}, {2, left(3, 5)}};
  CHECK(all_partners_left(recv_from_any(), both, 3));
  const auto after = [&](std::chrono::milliseconds known_for) {
    return diagnose({.size = 3, .departures = {{.own = recv_from_any(), .left = both, .known_for = known_for}}});
  };
  CHECK_FALSE(after(1s));
  const auto failure = after(2s);
  REQUIRE(failure);
  CHECK(failure->code == Errc::peer_lost);
  CHECK(contains(*failure, "rank 1 (pid 42 on host b); rank 2 (pid 42 on host b) left the group"));
}

TEST_CASE("a receive from a rank that left fails once the transport's linger timeout has passed") {
  const auto after = [](std::optional<std::chrono::milliseconds> linger, std::chrono::milliseconds known_for) {
    return diagnose(
        {.size = 3,
         .departures = {{.own = recv_from_2(), .left = {{1, left(3, 5)}, {2, left(3, 5)}}, .known_for = known_for}},
         .linger_timeout = linger});
  };
  CHECK_FALSE(after(std::nullopt, 1h));  // the transport fails it
  CHECK_FALSE(after(300ms, 299ms));
  const auto failure = after(300ms, 300ms);
  REQUIRE(failure);
  CHECK(failure->message ==
        "rank 2 (pid 42 on host b) left the group while recv of 4 float32 from rank 2 with tag 1 of rank 0 was in "
        "progress");
}

TEST_CASE("a collective fails at once when a rank left without taking part in it") {
  const auto with = [](const RankRecord& record) {
    return diagnose({.size = 3, .departures = {{.own = stall_at(41), .left = {{1, record}}}}});
  };
  CHECK_FALSE(with(left(42, 5)));
  CHECK(with(left(41, 5)));
}

TEST_CASE("a rank that took part and left is not taken for a frozen one") {
  auto done = left(42, 5);  // its last was #41
  done.operation = allreduce_of(10);
  const auto failure = diagnose_overdue(stall_at(41), {beating(inside(41, 9)), silent(done), beating(outside(41, 5))});
  CHECK(failure.code == Errc::timeout);
  CHECK(contains(failure, "rank 2 (pid 42 on host b) has not entered it"));
  CHECK_FALSE(contains(failure, "rank 1"));
}

TEST_CASE("a late receive names its partner and no other rank") {
  auto stall = stall_at(41);
  stall.operation = recv_of(4, 2, 1);
  const auto failure = diagnose_overdue(stall, {beating(inside(41, 9)), silent(outside(1, 5)), beating(outside(3, 5))});
  CHECK(failure.code == Errc::timeout);
  CHECK(contains(failure, "rank 2"));
  CHECK_FALSE(contains(failure, "rank 1"));
}

TEST_CASE("the loss of the store is that of the rank that serves it, or of its host, where one is known") {
  const auto by = [](const StoreHost& host) { return diagnose_lost_store(host, 1, "pid 7 on host a", "reset"); };
  CHECK(by({}) == GroupFailure{Errc::connection_lost, "rank 1 (pid 7 on host a) lost the group's store: reset"});
  CHECK(by({.rank = 1}).code == Errc::connection_lost);
  CHECK(by({.rank = 0}) == GroupFailure{Errc::peer_lost, "rank 0, whose process serves the store, was lost: reset"});
  CHECK(contains(by({.rank = 0, .identity = "rank 0 (pid 3 on host b)"}), "rank 0 (pid 3 on host b), whose process"));
  CHECK(by({.neighbour = "rank 2 (pid 9 on host b)"}) ==
        GroupFailure{Errc::peer_lost,
                     "rank 2 (pid 9 on host b), on whose host the store is, was lost, or rank 1 (pid 7 on host a) is "
                     "cut off from there: reset"});
}

namespace {

enum class Fault { none, left, silent, other_call, late };

// A group in one collective, in which one rank has one fault, and rank 0's observations.
struct Scenario {
  Fault fault;
  int size, faulty;
  std::uint64_t sequence;
  std::vector<Observation> observations;
};

Scenario make_scenario(std::mt19937& random) {
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  Scenario scenario{.fault = static_cast<Fault>(any(0, 4)), .size = any(2, 20)};
  scenario.faulty = any(1, scenario.size - 1);
  scenario.sequence = static_cast<std::uint64_t>(any(0, 50));
  for (int r = 0; r < scenario.size; ++r) {
    const auto beat = static_cast<std::uint64_t>(any(1, 9));
    auto each = beating(inside(scenario.sequence, beat));
    if (r == scenario.faulty && scenario.fault == Fault::left) each = silent(left(scenario.sequence, beat));
    if (r == scenario.faulty && scenario.fault == Fault::silent)
      each = silent(any(0, 1) == 0 ? inside(scenario.sequence, beat) : outside(scenario.sequence, beat));
    if (r == scenario.faulty && scenario.fault == Fault::other_call)
      each = beating(inside(scenario.sequence, beat, 11));
    if (r == scenario.faulty && scenario.fault == Fault::late) each = beating(outside(scenario.sequence, beat));
    scenario.observations.push_back(each);
  }
  return scenario;
}

Errc expected_code(Fault fault) {
  if (fault == Fault::left || fault == Fault::silent) return Errc::peer_lost;
  return fault == Fault::other_call ? Errc::mismatch : Errc::timeout;
}

}  // namespace

TEST_CASE("in random groups with one fault the faulty rank is named, and no other") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const auto scenario = make_scenario(random);
    INFO("scenario " << i << ", fault " << static_cast<int>(scenario.fault) << " of rank " << scenario.faulty << " of "
                     << scenario.size);
    const auto failure = diagnose_overdue(stall_at(scenario.sequence), scenario.observations);
    INFO(failure.message);
    REQUIRE(failure.code == expected_code(scenario.fault));
    REQUIRE(failure.lost == (scenario.fault == Fault::silent ? std::vector{scenario.faulty} : std::vector<int>()));
    for (int r = 1; r < scenario.size; ++r) {
      const bool named = contains(failure, "rank " + std::to_string(r) + " (");
      REQUIRE(named == (r == scenario.faulty && scenario.fault != Fault::none));
    }
    REQUIRE(decode_group_failure(encode(failure)) == failure);
  }
}

namespace {

OperationDescription random_operation(std::mt19937& random) {
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  switch (any(0, 3)) {
    case 0:
      return allreduce_of(static_cast<std::uint64_t>(any(10, 11)));
    case 1:
      return send_of(static_cast<std::uint64_t>(any(4, 5)), any(0, 4), any(0, 1));
    case 2:
      return recv_of(static_cast<std::uint64_t>(any(4, 5)), any(-1, 4), any(0, 1));
    default:
      return {};
  }
}

// Returns any record that a rank could publish.
RankRecord random_record(std::mt19937& random) {
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  const auto sequence = static_cast<std::uint64_t>(any(0, 4));
  auto record = any(0, 1) == 0 ? inside(sequence, static_cast<std::uint64_t>(any(0, 2)))
                               : outside(sequence, static_cast<std::uint64_t>(any(0, 2)));
  record.left = any(0, 4) == 0;
  for (int i = any(0, 4); i > 0; --i) {
    record.operations.push_back({.sequence = static_cast<std::uint64_t>(any(0, 4)),
                                 .state = static_cast<RankOperation::State>(any(0, 3)),
                                 .description = random_operation(random)});
  }
  return record;
}

}  // namespace

TEST_CASE("whatever the records say, this rank and ranks that send heartbeats are not lost") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int i = 0; i < 5000; ++i) {
    constexpr int size = 5;
    std::vector<Observation> observations(size);
    for (auto& each : observations) {
      if (any(0, 5) > 0) each.now = random_record(random);
      if (any(0, 5) > 0) each.before = random_record(random);
    }
    Stall stall{.rank = 0, .sequence = static_cast<std::uint64_t>(any(0, 4)), .operation = random_operation(random)};
    if (stall.operation.point_to_point() && stall.operation.peer == 0) stall.operation.peer = 1;
    if (any(0, 1) == 0) stall.transport_error = "reset";
    const auto failure = diagnose_overdue(stall, observations);
    INFO("record set " << i << ": " << failure.message);
    REQUIRE_FALSE(failure.message.empty());
    for (const int lost : failure.lost) {
      REQUIRE(lost != 0);
      const auto& [before, now] = observations[static_cast<std::size_t>(lost)];
      REQUIRE((!now || (before && before->beat == now->beat && !now->left)));
    }
    REQUIRE(decode_group_failure(encode(failure)) == failure);
  }
}

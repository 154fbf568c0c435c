#include "ddprun/worker/comm/health/diagnosis.h"

#include "ddprun/worker/comm/operations/operation.h"
#include "ddprun/worker/comm/process_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr std::uint16_t usual = 7;

RankRecord inside(std::uint64_t sequence, std::uint64_t beat, std::uint16_t signature = usual) {
  return {.beat = beat,
          .sequence = sequence,
          .inside = true,
          .signature = signature,
          .pid = 42,
          .host = "b",
          .operation = "allreduce(sum) of 10 float32"};
}
RankRecord outside(std::uint64_t next, std::uint64_t beat) {
  auto record = inside(next, beat);
  record.inside = false;
  record.operation = "barrier";
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
  return {
      .rank = 0, .sequence = sequence, .signature = usual, .operation = "allreduce(sum) of 10 float32", .seconds = 5};
}

bool contains(const Verdict& verdict, const std::string& text) {
  return verdict.message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a verdict survives encoding, and free text counts as a lost peer") {
  const Verdict verdict{Errc::mismatch, "first line\nsecond line"};
  CHECK(decode_verdict(encode(verdict)) == verdict);
  const auto loss = loss_of(2, "pid 42 on host b");
  CHECK(loss.lost == std::vector{2});
  CHECK(decode_verdict(encode(loss)) == loss);
  const Verdict several{Errc::peer_lost, "7 8", {0, 11}};
  CHECK(decode_verdict(encode(several)) == several);
  for (const auto* text : {"", " ", "1 ", "1 x", " 1", "99"}) CHECK(decode_verdict(text).message == text);
  CHECK(decode_verdict("rank 3 was lost") == Verdict{Errc::peer_lost, "rank 3 was lost"});
}

TEST_CASE("a rank disagrees that calls something else, or is done with it, and none in another operation") {
  constexpr std::uint16_t other = 8;
  auto done = outside(42, 3);  // its last was #41
  done.signature = other;
  CHECK(done.newest() == 41);
  CHECK(inside(41, 3).newest() == 41);
  CHECK(RankRecord{.beat = 3}.newest() == std::nullopt);
  for (const auto& record : {inside(41, 3, other), done}) {
    const auto verdict = blame_disagreeing(stall_at(41), {inside(41, 1), record, inside(41, 1)});
    REQUIRE(verdict);
    CHECK(verdict->code == Errc::mismatch);
    CHECK(contains(*verdict, "operation #41"));
    CHECK(contains(*verdict, "rank 1 (pid 42 on host b) calls"));
    CHECK_FALSE(contains(*verdict, "rank 2"));
    CHECK_FALSE(blame_disagreeing(stall_at(40), {inside(40, 1), record}));
    CHECK_FALSE(blame_disagreeing(stall_at(42), {inside(42, 1), record}));
  }
}

TEST_CASE("a rank that left comes before one without a sign of life") {
  auto gone = outside(41, 3);
  gone.left = true;
  const auto verdict = diagnose(stall_at(41), {beating(inside(41, 9)), silent(gone), silent(inside(41, 4))}, 3);
  CHECK(verdict.code == Errc::peer_lost);
  CHECK(contains(verdict, "rank 1 (pid 42 on host b) left the group"));
  CHECK_FALSE(contains(verdict, "rank 2"));
}

TEST_CASE("a rank whose record stands still is named, those that wait for it are not") {
  const auto verdict =
      diagnose(stall_at(41), {beating(inside(41, 9)), beating(outside(41, 5)), silent(inside(41, 4))}, 3.5);
  CHECK(verdict.code == Errc::peer_lost);
  CHECK(contains(verdict, "rank 2 (pid 42 on host b) has given no sign of life for 3.5 s"));
  CHECK_FALSE(contains(verdict, "rank 1"));
}

TEST_CASE("a rank that never published is named") {
  const auto verdict = diagnose(stall_at(0), {beating(inside(0, 9)), Observation{}}, 3);
  CHECK(verdict.code == Errc::peer_lost);
  CHECK(contains(verdict, "rank 1 has given no sign of life at all"));
}

TEST_CASE("ranks in different operations are told apart") {
  const auto verdict = diagnose(stall_at(41), {beating(inside(41, 9)), beating(inside(41, 5, usual + 1))}, 3);
  CHECK(verdict.code == Errc::mismatch);
  CHECK(contains(verdict, "rank 1"));
}

TEST_CASE("of several late ranks those furthest behind are named") {
  const auto verdict =
      diagnose(stall_at(41), {beating(inside(41, 9)), beating(inside(40, 5)), beating(outside(40, 5))}, 3);
  CHECK(verdict.code == Errc::timeout);
  CHECK(contains(verdict, "rank 2 (pid 42 on host b) has not entered it"));
  CHECK(contains(verdict, "its last was barrier #39"));
  CHECK_FALSE(contains(verdict, "rank 1"));
}

TEST_CASE("when all ranks are in the operation the network is to blame") {
  auto stall = stall_at(41);
  CHECK(diagnose(stall, {beating(inside(41, 9)), beating(inside(41, 5))}, 3).code == Errc::timeout);
  stall.transport = "connection reset by peer";
  const auto verdict = diagnose(stall, {beating(inside(41, 9)), beating(inside(41, 5))}, 3);
  CHECK(verdict.code == Errc::connection_lost);
  CHECK(contains(verdict, "connection reset by peer"));
}

namespace {

// Of rank 0, for the third message of its way.
Stall recv_from_2() {
  return {.rank = 0,
          .sequence = 3,
          .partner = 2,
          .operation = "recv of 4 float32 from rank 2 with tag 1",
          .counterpart = "send of 4 float32 to rank 0 with tag 1",
          .seconds = 5};
}
RankRecord in_message(std::uint64_t number, const std::string& text) {
  auto record = outside(3, 5);
  record.operations = {{.sequence = number, .transfer = true, .state = RankOperation::State::started, .text = text}};
  return record;
}

}  // namespace

TEST_CASE("the ends of a message disagree where they have its number, ranks and tag in common, and nothing else") {
  const auto verdict = blame_partner(recv_from_2(), in_message(3, "send of 5 float32 to rank 0 with tag 1"));
  REQUIRE(verdict);
  CHECK(verdict->code == Errc::mismatch);
  CHECK(verdict->message ==
        "rank 0 calls recv of 4 float32 from rank 2 with tag 1, rank 2 (pid 42 on host b) calls "
        "send of 5 float32 to rank 0 with tag 1");
  for (const auto& other : {in_message(3, "send of 4 float32 to rank 0 with tag 1"),
                            in_message(2, "send of 5 float32 to rank 0 with tag 1"),
                            in_message(0, "send of 5 float32 to rank 0 with tag 1"),
                            in_message(3, "send of 5 float32 to rank 0 with tag 2"),
                            in_message(3, "send of 5 float32 to rank 1 with tag 1"),
                            in_message(3, "recv of 5 float32 from rank 0 with tag 1"),
                            in_message(3, "recv of 5 float32 from any rank with tag 1")}) {
    INFO(other.operations.front().text);
    CHECK_FALSE(blame_partner(recv_from_2(), other));
  }
  auto unnumbered = recv_from_2();
  unnumbered.sequence = 0;
  CHECK_FALSE(blame_partner(unnumbered, in_message(0, "send of 5 float32 to rank 0 with tag 1")));
  CHECK_FALSE(blame_partner(unnumbered, in_message(3, "send of 5 float32 to rank 0 with tag 1")));
}

TEST_CASE("a message that both ends are in is the network's fault, and one in another place is told of") {
  const auto of = [](const RankRecord& partner) {
    return diagnose(recv_from_2(), {beating(outside(3, 5)), beating(outside(3, 5)), beating(partner)}, 3);
  };
  CHECK(contains(of(in_message(3, "send of 4 float32 to rank 0 with tag 1")), "the network between them"));
  CHECK(contains(of(in_message(1, "send of 4 float32 to rank 0 with tag 2")),
                 "has not called its counterpart; it is in send of 4 float32 to rank 0 with tag 2, after barrier #2"));
}

TEST_CASE("a receive from any rank is the counterpart of a send, where elements and tag are the same") {
  Operation recv{.kind = OpKind::recv, .dtype = DType::float32, .count = 4, .peer = 12, .tag = 1};
  const Stall stall{.rank = 12,
                    .partner = 0,
                    .operation = "send of 4 float32 to rank 0 with tag 1",
                    .counterpart = describe(recv),
                    .seconds = 5};
  const auto in = [&](const Operation& called) {
    return contains(diagnose(stall, {beating(in_message(0, describe(called)))}, 3), "the network between them");
  };
  CHECK(in(recv));
  recv.peer = any_source;
  CHECK(in(recv));
  auto other = recv;
  other.count = 5;
  CHECK_FALSE(in(other));
  other = recv;
  other.tag = 2;
  CHECK_FALSE(in(other));
  other = recv;
  other.peer = 1;
  CHECK_FALSE(in(other));
}

namespace {

// Of rank 0, from anybody.
Stall recv_from_any() {
  return {.rank = 0,
          .sequence = 0,
          .partner = Stall::anybody,
          .operation = "recv of 4 float32 from any rank with tag 1",
          .counterpart = "send of 4 float32 to rank 0 with tag 1",
          .seconds = 5};
}
RankRecord gone() {
  auto record = outside(3, 5);
  record.left = true;
  return record;
}
// Of the other ranks, after rank 0.
Verdict diagnosed(const std::vector<RankRecord>& others) {
  std::vector<Observation> observations{beating(outside(3, 5))};
  for (const auto& each : others) observations.push_back(each.left ? silent(each) : beating(each));
  return diagnose(recv_from_any(), observations, 3);
}

}  // namespace

TEST_CASE("of a receive from any rank it is told what the others send to its rank") {
  const auto other = diagnosed({in_message(1, "send of 4 float32 to rank 0 with tag 2"), outside(3, 5)});
  CHECK(other.code == Errc::timeout);
  CHECK(
      other.message ==
      "recv of 4 float32 from any rank with tag 1 of rank 0 did not complete within 5.0 s: no rank tells of send of 4 "
      "float32 to rank 0 with tag 1: rank 1 (pid 42 on host b) is in send of 4 float32 to rank 0 with tag 2");
  const auto network = diagnosed({outside(3, 5), in_message(1, "send of 4 float32 to rank 0 with tag 1")});
  CHECK(network.code == Errc::timeout);
  CHECK(contains(network, "rank 2 (pid 42 on host b) is in send of 4 float32 to rank 0 with tag 1: the network"));
}

TEST_CASE("of a receive from any rank to which nobody sends it is told where the others are, some of them") {
  const auto none = diagnosed({in_message(1, "send of 4 float32 to rank 10 with tag 1"), outside(3, 5), gone(),
                               outside(3, 5), outside(3, 5), outside(3, 5)});
  CHECK(none.code == Errc::timeout);
  CHECK(contains(none,
                 "no rank tells of a send to rank 0: rank 1 (pid 42 on host b) is in send of 4 float32 to rank 10"));
  CHECK(contains(none, "rank 2 (pid 42 on host b) is between operations; its last was barrier #2"));
  CHECK(contains(none, "rank 3 (pid 42 on host b) has left the group"));
  CHECK(contains(none, "2 more elsewhere"));
  CHECK_FALSE(contains(none, "rank 5"));
}

TEST_CASE("a receive from any rank misses who left only when nobody else is here") {
  CHECK_FALSE(blame_leavers(recv_from_any(), {outside(3, 5), gone(), outside(3, 5)}));
  CHECK_FALSE(blame_leavers(recv_from_any(), {outside(3, 5), gone(), std::nullopt}));
  const auto verdict = blame_leavers(recv_from_any(), {outside(3, 5), gone(), gone()});
  REQUIRE(verdict);
  CHECK(verdict->code == Errc::peer_lost);
  CHECK(contains(*verdict, "rank 1 (pid 42 on host b); rank 2 (pid 42 on host b) left the group"));
}

TEST_CASE("a rank that did its part and left is not taken for a frozen one") {
  auto done = outside(42, 5);
  done.left = true;
  const auto verdict = diagnose(stall_at(41), {beating(inside(41, 9)), silent(done), beating(outside(41, 5))}, 3);
  CHECK(verdict.code == Errc::timeout);
  CHECK(contains(verdict, "rank 2 (pid 42 on host b) has not entered it"));
  CHECK_FALSE(contains(verdict, "rank 1"));
}

TEST_CASE("only the partner of a receive is to blame for it") {
  auto stall = stall_at(41);
  stall.partner = 2;
  stall.operation = "recv of 4 float32 from rank 2 with tag 1";
  const auto verdict = diagnose(stall, {beating(inside(41, 9)), silent(outside(1, 5)), beating(outside(3, 5))}, 3);
  CHECK(verdict.code == Errc::timeout);
  CHECK(contains(verdict, "rank 2"));
  CHECK_FALSE(contains(verdict, "rank 1"));
}

#include "launcher/control/group_diagnosis.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "launcher/control/group_text.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;
using State = RankOperation::State;

namespace {

OperationDescription allreduce_of(std::uint64_t count) {
  return {.kind = "allreduce", .reduce_op = "sum", .dtype = "float32", .count = count};
}

RankOperation operation(std::uint64_t sequence, State state, RankProgress::Age age) {
  return {.sequence = sequence, .state = state, .age = age, .bytes = 400, .description = allreduce_of(100)};
}

RankProgress rank_of(int number, std::uint64_t sequence, bool inside) {
  RankRecord record{.sequence = sequence, .inside = inside, .size = 3, .pid = 70 + number, .host = "a"};
  if (sequence > 0 || inside) record.operation = allreduce_of(100);
  return {.record = record};
}
RankProgress in(int number, std::uint64_t sequence, RankProgress::Age age) {
  auto rank = rank_of(number, sequence, true);
  if (sequence > 0) rank.record->operations = {operation(sequence - 1, State::done, age + 1s)};
  rank.record->operations.push_back(operation(sequence, State::started, age));
  return rank;
}
RankProgress before(int number, std::uint64_t sequence, RankProgress::Age age) {
  auto rank = rank_of(number, sequence, false);
  if (sequence > 0) rank.record->operations = {operation(sequence - 1, State::done, age)};
  return rank;
}

std::string diagnosis_of(std::vector<RankProgress> ranks) {
  return diagnose({"group/0", std::move(ranks)});
}

}  // namespace

TEST_CASE("the diagnosis names a rank that is in an earlier operation, or in its own code, while others wait") {
  CHECK(diagnosis_of({in(0, 412, 12s), in(1, 412, 12100ms), in(2, 411, 12300ms)}) ==
        "operation #412, allreduce(sum) of 100 float32: rank 2 (pid 72 on host a) has not entered it: it is in #411, "
        "allreduce(sum) of 100 float32, for 12.3 s; 2 ranks wait in it, for up to 12.1 s");
  CHECK(diagnosis_of({before(0, 412, 20s), in(1, 412, 12s), in(2, 412, 9s)}) ==
        "operation #412, allreduce(sum) of 100 float32: rank 0 (pid 70 on host a) has not entered it: it is between "
        "operations; its last, #411, allreduce(sum) of 100 float32, ended 20.0 s ago; 2 ranks wait in it, for up to "
        "12.0 s");
  CHECK_THAT(diagnosis_of({before(0, 0, 0s), in(1, 0, 12s), in(2, 0, 9s)}),
             Catch::Contains("rank 0 (pid 70 on host a) has not entered it: it has not called any operation yet"));
}

TEST_CASE("the diagnosis blames all ranks that are furthest behind, and none that waits for them") {
  const auto chain = diagnosis_of({in(0, 7, 9s), in(1, 6, 9s), before(2, 6, 9s)});
  CHECK_THAT(chain, Catch::StartsWith("operation #6, "));
  CHECK_THAT(chain, Catch::Contains("rank 2 (pid 72 on host a) has not entered it"));
  CHECK_THAT(chain, !Catch::Contains("rank 1"));
  const auto two = diagnosis_of({in(0, 7, 9s), before(1, 7, 9s), before(2, 7, 9s)});
  CHECK_THAT(two, Catch::Contains("rank 1 (pid 71 on host a) has not entered it"));
  CHECK_THAT(two, Catch::Contains("; rank 2 (pid 72 on host a) has not entered it"));
  CHECK_THAT(two, Catch::Contains("1 rank waits in it, for up to 9.0 s"));
}

TEST_CASE("a rank with several operations in progress counts as being in the oldest one") {
  auto several = in(0, 7, 9s);
  several.record->operations.push_back(operation(8, State::started, 9s));
  auto others = in(1, 7, 9s);
  others.record->operations.push_back(operation(8, State::started, 9s));
  CHECK_THAT(diagnosis_of({several, others, before(2, 7, 9s)}),
             Catch::StartsWith("operation #7, ") && Catch::Contains("rank 2 (pid 72 on host a) has not entered it") &&
                 !Catch::Contains("rank 1"));
  CHECK_THAT(diagnosis_of({several, others, in(2, 7, 9s)}), Catch::Contains("all ranks have entered it"));
  CHECK_THAT(diagnosis_of({several, in(1, 8, 9s), in(2, 8, 9s)}),
             Catch::Contains("rank 0 (pid 70 on host a) is behind: it is in #7"));
}

TEST_CASE("the diagnosis has the state of a late rank's process and the age of its last report") {
  auto frozen = before(2, 7, 9s);
  frozen.process = "frozen by SIGSTOP for 8 s";
  CHECK_THAT(diagnosis_of({in(0, 7, 9s), in(1, 7, 9s), frozen}),
             Catch::Contains("its process: frozen by SIGSTOP for 8 s"));
  auto silent = before(2, 7, 2s);
  silent.report_age = 5s;
  CHECK_THAT(diagnosis_of({in(0, 7, 9s), in(1, 7, 9s), silent}),
             Catch::Contains("ended 7.0 s ago, according to its report of 5.0 s ago"));
}

TEST_CASE("differences between the ranks of a job that makes progress are not reported") {
  CHECK(diagnosis_of({in(0, 412, 0s), before(1, 380, 20ms), in(2, 401, 900ms)}) ==
        "no operation has taken longer than 3 s so far; the newest is #412");
  CHECK(diagnosis_of({before(0, 0, 0s), before(1, 0, 0s), before(2, 0, 0s)}) == "no rank has called an operation yet");
}

TEST_CASE(
    "the diagnosis distinguishes missing ranks, different operations, and a slow operation that all ranks are in") {
  CHECK(diagnosis_of({in(0, 0, 9s), {}, in(2, 0, 9s)}) == "not all 3 ranks have joined the group; missing: rank 1");
  auto other = in(2, 7, 9s);
  other.record->operation = OperationDescription{};
  CHECK(diagnosis_of({in(0, 7, 9s), in(1, 7, 9s), other}) ==
        "the ranks disagree on operation #7: rank 2 (pid 72 on host a) calls barrier; rank 0 (pid 70 on host a) and 1 "
        "other call allreduce(sum) of 100 float32");
  CHECK(diagnosis_of({in(0, 7, 9s), in(1, 7, 9s), in(2, 7, 4s)}) ==
        "operation #7, allreduce(sum) of 100 float32: all ranks have entered it; 3 ranks wait in it, for up to 9.0 s; "
        "the "
        "transport is slow or broken");
}

TEST_CASE("the diagnosis names a send without a matching receive") {
  auto sender = before(0, 7, 9s);
  sender.record->operations.push_back({.sequence = 7,
                                       .state = State::started,
                                       .age = 8s,
                                       .description = {.kind = "send", .count = 8, .peer = 1, .tag = 7}});
  CHECK(diagnosis_of({sender, before(1, 7, 9s), before(2, 7, 9s)}) ==
        "no matching call for send of 8 uint8 to rank 1 with tag 7 by rank 0 (pid 70 on host a), for 8.0 s");
}

TEST_CASE("the text of a group is its diagnosis and a table") {
  auto frozen = before(1, 8, 12s);
  frozen.process = "frozen by SIGSTOP for 8 s";
  const auto text = group_text({"group/0", {in(0, 8, 1s), frozen, {}}});
  CHECK(
      text ==
      "group/0: not all 3 ranks have joined the group; missing: rank 2\n"
      "  rank  host  pid  done  operation                         bytes  state    for\n"
      "  0     a     70   #7    #8 allreduce(sum) of 100 float32  400    started  1.0 s\n"
      "  1     a     71   #7    -                                 -      outside  12.0 s  frozen by SIGSTOP for 8 s\n"
      "  2     -     -    -     -                                 -      absent   -       has not joined the group\n");
}

TEST_CASE("in JSON each operation has its sequence number, except a send or receive whose number is unknown") {
  auto rank = in(0, 0, 1s);
  rank.record->operations.push_back({.sequence = 3, .description = {.kind = "send", .count = 8, .peer = 1, .tag = 7}});
  rank.record->operations.push_back({.sequence = 0, .description = {.kind = "recv", .count = 8}});
  const auto document = boost::json::parse(groups_json({}, {{"group/0", {rank}}}));
  const auto& operations = document.at("groups").at(0).at("ranks").at(0).at("operations").as_array();
  REQUIRE(operations.size() == 3);
  CHECK(operations[0].at("sequence") == 0);
  CHECK(operations[1].at("sequence") == 3);
  CHECK_FALSE(operations[2].as_object().contains("sequence"));
}

// Which step holds after a fault where ranks have parts of the state, and who gets its part from whom.
#include "worker/recovery/positions.h"

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

const std::vector<int> all_differ{0, 1, 2};     // ZeRO
const std::vector<int> two_copies{0, 1, 0, 1};  // data x tensor

HeldPart applied(std::int64_t step, int part) {
  return {.step = step, .part = part, .applied = true};
}

HeldPart ready(std::int64_t step, int part) {
  return {.step = step, .part = part, .applied = true, .ready = true};
}

HeldPart kept(std::int64_t step, int part) {
  return {.step = step, .part = part, .applied = false};
}

}  // namespace

TEST_CASE("the state of a lost rank that has a replica comes from it, and nobody returns to an earlier step") {
  const std::vector<Holdings> processes{{two_copies, {applied(7, 0)}, 7},
                                        {},
                                        {two_copies, {applied(7, 0)}, 7},
                                        {two_copies, {applied(7, 1), kept(5, 1)}, 7}};
  CHECK(
      compare_positions(processes) ==
      Catchup{
          .step = 7, .source = 0, .lagging = {1}, .from = StateSource::applied, .sources = {0, 3, 2, 3}, .reached = 7});
}

TEST_CASE("where a lost rank's part has no replica all return to the newest step of which there are all copies") {
  const std::vector<Holdings> processes{
      {all_differ, {kept(5, 0), kept(5, 2), applied(9, 0)}, 9, 5},
      {},
      {all_differ, {kept(5, 2), kept(5, 1), kept(3, 2), kept(3, 1), applied(8, 2)}, 8, 3}};
  CHECK(
      compare_positions(processes) ==
      Catchup{.step = 5, .source = 0, .lagging = {1}, .from = StateSource::copies, .sources = {0, 2, 2}, .reached = 9});
}

TEST_CASE("copies that not all ranks had yet do not count, and those before them do") {
  const std::vector<Holdings> processes{{all_differ, {kept(8, 0), kept(5, 0), kept(5, 2)}, 8, 5},
                                        {},
                                        {all_differ, {kept(8, 2), kept(5, 2), kept(5, 1)}, 8, 5}};
  const auto catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(catchup->step == 5);
}

TEST_CASE("complete copies count only if a member knows that all ranks had them") {
  std::vector<Holdings> processes{{{0, 1}, {kept(8, 0), kept(8, 1), kept(5, 0), kept(5, 1)}, 8, 5},
                                  {{0, 1}, {kept(8, 1), kept(5, 1), kept(5, 0)}, 8, 5}};
  CHECK(compare_positions(processes)->step == 5);
  processes[0].confirmed = 8;
  CHECK(compare_positions(processes)->step == 8);
}

TEST_CASE("a step that ranks with different parts have applied differently does not stand") {
  const std::vector<Holdings> processes{{two_copies, {applied(7, 0), kept(4, 0), kept(4, 1)}, 7, 4},
                                        {two_copies, {applied(6, 1), kept(4, 1), kept(4, 0)}, 6, 4},
                                        {two_copies, {applied(7, 0), kept(4, 0), kept(4, 1)}, 7, 4},
                                        {}};
  const auto catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(catchup->step == 4);
  CHECK(catchup->from == StateSource::copies);
  CHECK(catchup->sources == std::vector{0, 1, 2, 0});
}

TEST_CASE("a step stands if ranks that had not applied it were ready, and one has applied it") {
  std::vector<Holdings> processes{{two_copies, {applied(6, 0), ready(7, 0), kept(4, 0), kept(4, 1)}, 6, 4, {}, 6},
                                  {two_copies, {applied(6, 1), ready(7, 1), kept(4, 1), kept(4, 0)}, 6, 4, {}, 6},
                                  {two_copies, {applied(7, 0), kept(4, 0), kept(4, 1)}, 7, 4, {}, 7},
                                  {}};
  auto catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(*catchup == Catchup{.step = 7, .source = 2, .lagging = {3}, .sources = {0, 1, 2, 1}, .reached = 7});
  processes[2] = {two_copies, {applied(6, 0), ready(7, 0), kept(4, 0), kept(4, 1)}, 6, 4, {}, 6};
  catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(catchup->step == 6);  // no rank has the result of step 7
  CHECK(catchup->from == StateSource::applied);
  processes[0].held.erase(processes[0].held.begin());
  processes[2] = {};
  CHECK(compare_positions(processes)->from == StateSource::copies);
}

TEST_CASE("of one step, what ranks have applied is preferred to copies") {
  const std::vector<Holdings> processes{{{0, 1}, {kept(5, 0), kept(5, 1), applied(5, 0)}, 5, 5},
                                        {{0, 1}, {kept(5, 1), kept(5, 0), applied(5, 1)}, 5, 5}};
  const auto catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(catchup->from == StateSource::applied);
  CHECK(catchup->lagging.empty());
}

TEST_CASE("a group of another size gets all parts from members of the previous group, also if new ranks are in it") {
  const Holdings first{all_differ, {kept(5, 0), kept(5, 2)}, 9, 5}, last{all_differ, {kept(5, 2), kept(5, 1)}, 9, 5};
  CHECK(compare_positions(std::vector<Holdings>{first, {}, last}));
  const auto smaller = compare_positions(std::vector<Holdings>{first, last});
  REQUIRE(smaller);
  CHECK(smaller->holders == std::vector{0, 1, 0});
  CHECK(smaller->sources.empty());
  const auto larger = compare_positions(std::vector<Holdings>{{}, first, last, {}});
  REQUIRE(larger);
  CHECK(larger->source == 1);
  CHECK(larger->holders == std::vector{1, 2, 1});
}

TEST_CASE("a rank that was alone has all parts, and divides them with one that joins") {
  const auto catchup = compare_positions(std::vector<Holdings>{{{0}, {applied(4, 0)}, 4}, {}});
  REQUIRE(catchup);
  CHECK(catchup->holders == std::vector{0});
}

TEST_CASE("copies of a larger group's ranks count until those of all of its successor's are complete") {
  const std::vector<int> two{0, 1};
  const auto of_three = [](std::vector<HeldPart> held) {
    return Holdings{.parts = {0, 1, 2}, .held = std::move(held), .reached = 9, .confirmed = 5};
  };
  std::vector<Holdings> processes{
      {.parts = two, .held = {kept(7, 0), kept(7, 1)}, .reached = 9, .earlier = {of_three({kept(5, 0), kept(5, 2)})}},
      {.parts = two, .reached = 9, .earlier = {of_three({kept(5, 1)})}}};
  const auto before = compare_positions(processes);
  REQUIRE(before);
  CHECK(before->step == 5);
  CHECK(before->holders == std::vector{0, 1, 0});
  processes[0].confirmed = 7;
  CHECK(compare_positions(processes)->step == 7);
  processes[1].held = {applied(7, 1)};
  processes[0].held.push_back(applied(7, 0));
  CHECK(compare_positions(processes)->from == StateSource::applied);
}

TEST_CASE("parts that have moved within a group are not those of before, and the next group has others") {
  const auto after_move = [](Holdings holdings) {
    holdings.moves = 1;
    return holdings;
  };
  const std::vector<int> two{0, 1};
  // Copies are of the stages before, and one process still has its part as it was then.
  std::vector<Holdings> processes{
      {.parts = two, .held = {kept(5, 0), kept(5, 1), applied(8, 0)}, .reached = 8, .confirmed = 5},
      after_move({.parts = two, .held = {applied(8, 1)}, .reached = 8})};
  auto catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(catchup->step == 5);
  CHECK(catchup->moves == 0);
  CHECK(catchup->sources == std::vector{0, 0});
  processes[0] = after_move({.parts = two,
                             .held = {applied(8, 0)},
                             .reached = 8,
                             .earlier = {{.parts = two, .held = {kept(5, 0), kept(5, 1)}, .confirmed = 5}}});
  catchup = compare_positions(processes);
  REQUIRE(catchup);
  CHECK(catchup->step == 8);
  CHECK(catchup->moves == 1);
  CHECK(catchup->sources.empty());
  CHECK(catchup->holders == std::vector{0, 1});
}

TEST_CASE("some of the parts are of no use") {
  const Holdings first{all_differ, {kept(5, 0), kept(5, 2)}, 9, 5};
  CHECK_FALSE(compare_positions(std::vector<Holdings>{first, {}, {}}));
  CHECK_FALSE(compare_positions(std::vector<Holdings>{first}));
}

TEST_CASE("the whole state counts in a group of any size") {
  const auto catchup = compare_positions(std::vector<Holdings>{{}, whole_state(3)});
  REQUIRE(catchup);
  CHECK(catchup->sources == std::vector{1, 1});
}

TEST_CASE("the events of a step are repeated unless rank 0 and all others that have applied it have had them") {
  const auto at = [](Position position, bool done) {
    auto holdings = whole_state(position);
    if (done) holdings.events_done = holdings.reached;
    return holdings;
  };
  const auto repeats = [](const std::vector<Holdings>& processes) { return compare_positions(processes)->repeats; };
  CHECK_FALSE(repeats({at(3, true), at(3, true)}));
  CHECK_FALSE(repeats({at(3, true), {}}));  // a process that joins
  CHECK(repeats({{}, at(3, true)}));        // rank 0 has been replaced
  CHECK(repeats({at(3, true), at(3, false)}));
  CHECK(repeats({at(3, true), at(4, false)}));
  CHECK(repeats({at(3, true), at(4, true)}));
  CHECK_FALSE(repeats({at(4, true), at(3, true)}));
}

TEST_CASE("holdings travel as text") {
  auto with_events = whole_state(7);
  with_events.events_done = 7;
  for (const auto& holdings :
       {Holdings{}, whole_state(7), with_events, Holdings{all_differ, {kept(5, 0), applied(9, 0)}, 9, 5},
        Holdings{all_differ, {kept(5, 0)}, 9, 5, {Holdings{two_copies, {kept(3, 1)}, 9, 3}}},
        Holdings{.parts = {0, 1}, .held = {kept(5, 0)}, .earlier = {{.parts = {0, 1}, .moves = 2}}, .moves = 3}})
    CHECK(decode_holdings(encode(holdings)) == holdings);
  CHECK_THROWS_AS(decode_holdings("7 5 3 0"), Error);
  CHECK_THROWS_AS(decode_holdings(""), Error);
}

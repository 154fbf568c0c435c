#include "worker/recovery/recovery_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// Returns the holdings of processes where every rank has the whole state.
std::vector<Holdings> whole_states(const std::vector<Position>& positions) {
  std::vector<Holdings> all;
  for (const auto position : positions) all.push_back(whole_state(position));
  return all;
}

// Returns texts such as "await 1; form 2; compare 7; copy 7 from 0; receive 7 from 0; train 7; give up: why".
struct Name {
  std::string operator()(const RecoveryState::AwaitPlan& r) const { return fmt::format("await {}", r.newer_than); }
  std::string operator()(const RecoveryState::FormGroup& r) const { return fmt::format("form {}", r.plan.generation); }
  std::string operator()(const RecoveryState::ComparePositions& r) const {
    return r.own.held.empty() ? "compare nothing" : fmt::format("compare {}", r.own.held.front().step);
  }
  std::string operator()(const RecoveryState::CopyState& r) const {
    return fmt::format("{} {} from {}", r.receives ? "receive" : "copy", r.catchup.step, r.catchup.source);
  }
  std::string operator()(const RecoveryState::Train& r) const { return fmt::format("train {}", r.step); }
  std::string operator()(const RecoveryState::Leave&) const { return "leave"; }
  std::string operator()(const RecoveryState::GiveUp& r) const { return "give up: " + r.reason; }
};

std::string name(const RecoveryState::Request& request) {
  return std::visit(Name{}, request);
}

MembershipPlan plan(std::uint64_t generation, std::vector<std::string> members) {
  return {generation, std::move(members), {}};
}

}  // namespace

TEST_CASE("a step that one member has applied stands, and the others copy from the lowest rank that has it") {
  CHECK(compare_positions(whole_states({6, 7, 7, std::nullopt})) ==
        Catchup{.step = 7, .source = 1, .lagging = {0, 3}, .sources = {1, 1, 2, 1}, .reached = 7});
  CHECK(compare_positions(whole_states({7, 7})) ==
        Catchup{.step = 7, .source = 0, .lagging = {}, .sources = {0, 1}, .reached = 7});
  CHECK(compare_positions(whole_states({std::nullopt, 0})) ==
        Catchup{.step = 0, .source = 1, .lagging = {0}, .sources = {1, 1}, .reached = 0});
  CHECK_FALSE(compare_positions(whole_states({std::nullopt, std::nullopt})));
  CHECK_FALSE(compare_positions({}));
}

TEST_CASE("a rank whose group fails joins the next generation, and trains on from the step that stands") {
  RecoveryState state("1.0", whole_state(6), 0);
  CHECK(name(state.on_failure("rank 0 died")) == "await 0");
  CHECK(name(state.on_plan(plan(1, {"0.1", "1.0", "2.0"}))) == "form 1");
  CHECK(name(state.on_formed()) == "compare 6");
  CHECK(name(state.on_positions(whole_states({std::nullopt, 6, 6}))) == "copy 6 from 1");
  CHECK(name(state.on_copied(6)) == "train 6");
  CHECK(state.own() == whole_state(6));
  state.on_applied(7);
  CHECK(name(state.on_failure("again")) == "await 1");
  CHECK(name(state.on_plan(plan(2, {"0.1", "1.0", "2.1"}))) == "form 2");
  CHECK(name(state.on_formed()) == "compare 7");
}

TEST_CASE("a plan whose ranks do not fit the layout is passed over, and named if none follows") {
  RecoveryState state("0.0", {}, 0, RecoveryState::Layout{.fits = [](int ranks) { return ranks % 2 == 0; }});
  CHECK(name(state.on_failure("rank 3 died")) == "await 0");
  CHECK(name(state.on_plan(plan(1, {"0.0", "1.0", "2.0"}))) == "await 1");
  CHECK(name(state.on_no_plan()) ==
        "give up: 3 ranks do not fit the layout of [parallel], and no others have joined; rank 3 died");
  CHECK(name(state.on_plan(plan(2, {"0.0", "1.0", "2.0", "3.1"}))) == "form 2");
  CHECK(name(state.on_no_plan()) == "give up: rank 3 died");
}

TEST_CASE("ranks that stand at the same step copy nothing") {
  RecoveryState state("0.0", whole_state(4), 0);
  state.on_failure("a link was cut");
  state.on_plan(plan(1, {"0.0", "1.0"}));
  state.on_formed();
  CHECK(name(state.on_positions(whole_states({4, 4}))) == "train 4");
}

TEST_CASE("a rank that is interrupted while it copies has no state any more, and copies from another one") {
  RecoveryState state("2.0", whole_state(6), 0);
  state.on_failure("rank 0 died");
  state.on_plan(plan(1, {"0.1", "1.0", "2.0"}));
  state.on_formed();
  CHECK(name(state.on_positions(whole_states({std::nullopt, 7, 6}))) == "receive 7 from 1");
  CHECK(name(state.on_failure("rank 1 died")) == "await 1");
  CHECK(name(state.on_plan(plan(2, {"0.1", "1.1", "2.0"}))) == "form 2");
  CHECK(name(state.on_formed()) == "compare nothing");
  CHECK(name(state.on_positions(whole_states({std::nullopt, std::nullopt, std::nullopt}))) ==
        "give up: all ranks that had the state of the training are lost");
}

TEST_CASE("the source of a copy that is interrupted keeps its state") {
  RecoveryState state("1.0", whole_state(7), 0);
  state.on_failure("rank 0 died");
  state.on_plan(plan(1, {"0.1", "1.0"}));
  state.on_formed();
  CHECK(name(state.on_positions(whole_states({std::nullopt, 7}))) == "copy 7 from 1");
  state.on_failure("rank 0 died again");
  state.on_plan(plan(2, {"0.2", "1.0"}));
  CHECK(name(state.on_formed()) == "compare 7");
}

TEST_CASE("a replacement joins without a state and receives it") {
  RecoveryState state("0.1", {}, 0);
  CHECK(name(state.on_failure("it joins")) == "await 0");
  CHECK(name(state.on_plan(plan(1, {"0.1", "1.0"}))) == "form 1");
  CHECK(name(state.on_formed()) == "compare nothing");
  CHECK(name(state.on_positions(whole_states({std::nullopt, 3}))) == "receive 3 from 1");
  CHECK(name(state.on_copied(3)) == "train 3");
  CHECK(state.own() == whole_state(3));
}

TEST_CASE("a rank gives up with the first failure when no plan follows, or one without members, or one without it") {
  RecoveryState waiting("1.0", whole_state(6), 0);
  waiting.on_failure("rank 0 is frozen");
  waiting.on_plan(plan(1, {"0.0", "1.0"}));
  waiting.on_failure("rank 0 did not join");
  CHECK(name(waiting.on_no_plan()) == "give up: rank 0 is frozen");

  RecoveryState stopped("1.0", whole_state(6), 0);
  stopped.on_failure("rank 0 died");
  CHECK(name(stopped.on_plan(plan(1, {}))) == "give up: rank 0 died");

  RecoveryState fenced("1.0", whole_state(6), 0);
  fenced.on_failure("the link is cut");
  CHECK(name(fenced.on_plan(plan(1, {"0.0", "1.1"}))) ==
        "give up: process 1.0 is not a member of generation 1: it was given up for dead");
}

TEST_CASE("after a change that all know of, a rank that is no member leaves in order, and the others train on") {
  RecoveryState leaves("1.0", whole_state(6), 0);
  CHECK(name(leaves.on_change()) == "await 0");
  CHECK(name(leaves.on_plan(plan(1, {"0.0", "2.0"}))) == "leave");
  RecoveryState stays("2.0", whole_state(6), 0);
  stays.on_change();
  CHECK(name(stays.on_plan(plan(1, {"0.0", "2.0"}))) == "form 1");
  stays.on_formed();
  CHECK(name(stays.on_positions(whole_states({6, 6}))) == "train 6");
  stays.on_failure("rank 0 died");
  CHECK(name(stays.on_plan(plan(2, {"0.2"}))).starts_with("give up: process 2.0 is not a member of generation 2"));
}

TEST_CASE(
    "a rank whose node leaves with the store leaves in order, and the others wait for the plan of another store") {
  const MembershipPlan leave{.generation = 1, .members = {}, .leaving = {"0.0"}};
  RecoveryState first("0.0", whole_state(7), 0), second("1.0", whole_state(7), 0);
  CHECK(name(first.on_change()) == "await 0");
  CHECK(name(first.on_plan(leave)) == "leave");
  CHECK(name(second.on_change()) == "await 0");
  CHECK(name(second.on_plan(leave)) == "give up: the members of the process group change");
}

TEST_CASE("a rank tells the others whether it has had all events of the step that it has applied") {
  RecoveryState state("1.0", whole_state(6), 0);
  state.set_events_done(true);
  state.on_change();
  state.on_plan({1, {"0.0", "1.0"}});
  CHECK(std::get<RecoveryState::ComparePositions>(state.on_formed()).own.events_done == 6);
  state.on_applied(7);
  CHECK(state.own().events_done == -1);
}

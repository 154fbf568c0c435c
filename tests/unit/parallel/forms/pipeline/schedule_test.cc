#include "worker/parallel/forms/pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "common/error.h"
#include "worker/parallel/forms/pipeline/simulation.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::pipeline;

namespace {

using Kind = ActionKind;

// A kind of schedule, with its number of virtual stages.
struct Form {
  ScheduleKind kind;
  int virtual_stages;
};
constexpr Form forms[] = {{ScheduleKind::gpipe, 1},       {ScheduleKind::one_forward_one_backward, 1},
                          {ScheduleKind::zero_bubble, 1}, {ScheduleKind::interleaved, 2},
                          {ScheduleKind::interleaved, 3}, {ScheduleKind::interleaved, 4}};

Schedule plan(const Form& form, int ranks, int micro_batches) {
  return plan_schedule(form.kind,
                       {.ranks = ranks, .micro_batches = micro_batches, .virtual_stages = form.virtual_stages});
}

template <class Body>
void for_each_size(Body body) {
  for (const Form& form : forms)
    for (const int ranks : {1, 2, 3, 4, 7, 8, 16})
      for (const int micro_batches : {1, 2, 3, 5, 8, 16, 17, 32, 64})
        if (ranks * form.virtual_stages <= 16) body(form, plan(form, ranks, micro_batches));
}

std::vector<Kind> kinds_of(ScheduleKind kind) {
  if (kind == ScheduleKind::zero_bubble) return {Kind::forward, Kind::backward_input, Kind::backward_weight};
  return {Kind::forward, Kind::backward};
}

// Returns the usual costs: a forward pass costs the same at all stages; a backward pass twice as much.
SimulationOptions usual_costs() {
  return {.cost = [](const Action& action) { return action.kind == Kind::backward ? 2.0 : 1.0; }};
}

}  // namespace

TEST_CASE("each micro-batch passes each stage once, forward and backward, in ascending order") {
  for_each_size([](const Form& form, const Schedule& schedule) {
    std::map<std::tuple<Kind, int>, std::vector<int>> passes;
    for (int rank = 0; rank < schedule.ranks; ++rank)
      for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
        REQUIRE(schedule.rank_of(action.stage) == rank);
        passes[{action.kind, action.stage}].push_back(action.micro_batch);
      }
    std::vector<int> all;
    for (int m = 0; m < schedule.micro_batches; ++m) all.push_back(m);
    REQUIRE(passes.size() == kinds_of(form.kind).size() * static_cast<std::size_t>(schedule.stages));
    for (const auto& [key, micro_batches] : passes) REQUIRE(micro_batches == all);
  });
}

TEST_CASE("no schedule deadlocks, and none needs more pending sends than it has activations") {
  for_each_size([](const Form&, const Schedule& schedule) {
    const SimulationResult free = simulate(schedule, usual_costs());
    REQUIRE(free.deadlock.empty());
    auto bounded = usual_costs();
    bounded.pending_sends = free.peak_messages;
    REQUIRE(simulate(schedule, bounded).deadlock.empty());
    REQUIRE(free.peak_messages <= static_cast<std::size_t>(*std::ranges::max_element(free.peak_activations)));
  });
}

TEST_CASE("a deadlock is found, with what each rank waits for") {
  // Two neighbours that send to each other at the same time, and wait until they are received.
  const Schedule schedule = plan({ScheduleKind::one_forward_one_backward, 1}, 3, 4);
  auto synchronous = usual_costs();
  synchronous.pending_sends = 0;
  const auto result = simulate(schedule, synchronous);
  REQUIRE(result.deadlock.size() == 3);
  CHECK(result.deadlock[0] == "rank 0 waits until the result of forward of micro-batch 2 at stage 0 is received");
  CHECK_THAT(result.deadlock[1], Catch::Contains("rank 1 waits until the result of"));

  Schedule out_of_order = plan({ScheduleKind::gpipe, 1}, 2, 1);
  std::ranges::reverse(out_of_order.actions[0]);
  const auto stuck = simulate(out_of_order);
  REQUIRE(stuck.deadlock.size() == 2);
  CHECK(stuck.deadlock[0] == "rank 0 waits for the input of backward of micro-batch 0 at stage 0");
}

TEST_CASE("the bubble is that of the papers' formulas") {
  for_each_size([](const Form& form, const Schedule& schedule) {
    const double p = schedule.ranks, m = schedule.micro_batches, v = form.virtual_stages;
    if (form.kind == ScheduleKind::interleaved && schedule.micro_batches % schedule.ranks != 0) return;
    if (form.kind == ScheduleKind::zero_bubble && m < p) return;
    // The formula is that of Qi et al. 2023: (p - 1)(forward + backward_input - backward_weight), where each takes 1.
    const double expected =
        form.kind == ScheduleKind::zero_bubble ? (p - 1) / (3 * m + p - 1) : (p - 1) / (v * m + p - 1);
    REQUIRE(simulate(schedule, usual_costs()).bubble() == Approx(expected).margin(1e-12));
  });
}

TEST_CASE("a rank keeps as many activations as the schedule promises") {
  for_each_size([](const Form& form, const Schedule& schedule) {
    const int p = schedule.ranks, m = schedule.micro_batches, v = form.virtual_stages;
    const auto peaks = simulate(schedule, usual_costs()).peak_activations;
    for (int rank = 0; rank < p; ++rank) {
      const int peak = peaks[static_cast<std::size_t>(rank)];
      switch (form.kind) {
        case ScheduleKind::gpipe:
          REQUIRE(peak == m);
          break;
        case ScheduleKind::one_forward_one_backward:
          REQUIRE(peak == std::min(p - rank, m));
          break;
        case ScheduleKind::zero_bubble:
          REQUIRE(peak <= std::min(p, m));
          break;
        case ScheduleKind::interleaved:
          REQUIRE(peak <= std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v));
          if (m % p == 0) REQUIRE(peak == std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v));
          break;
      }
    }
  });
}

TEST_CASE("with random costs and latencies nothing deadlocks, and no rank is idle without reason") {
  Generator random(11);
  const auto up_to = [&](std::uint64_t n) { return static_cast<int>(random.next_u64() % n); };
  for (int i = 0; i < 300; ++i) {
    const Form& form = forms[up_to(std::size(forms))];
    const Schedule schedule = plan(form, 1 + up_to(6), 1 + up_to(20));
    std::map<std::tuple<Kind, int, int>, double> costs;
    for (const auto& actions : schedule.actions)
      for (const Action& a : actions) costs[{a.kind, a.stage, a.micro_batch}] = up_to(100);
    SimulationOptions options{.cost =
                                  [&](const Action& a) {
                                    return costs.at({a.kind, a.stage, a.micro_batch});
                                  },
                              .latency = static_cast<double>(up_to(50))};
    const auto free = simulate(schedule, options);
    REQUIRE(free.deadlock.empty());
    REQUIRE(free.duration >= *std::ranges::max_element(free.busy));
    REQUIRE(free.bubble() >= -1e-12);
    double everything = 0;
    for (const double busy : free.busy) everything += busy;
    const double messages = 2.0 * schedule.stages * schedule.micro_batches;
    REQUIRE(free.duration <= everything + messages * options.latency);
    options.pending_sends = free.peak_messages;
    const auto bounded = simulate(schedule, options);
    REQUIRE(bounded.deadlock.empty());
    REQUIRE(bounded.duration >= free.duration);
  }
}

TEST_CASE("schedules have names, and sizes are checked") {
  CHECK(parse_schedule("1f1b") == ScheduleKind::one_forward_one_backward);
  CHECK_THROWS_WITH(parse_schedule("2f2b"), Catch::Contains("'2f2b'") && Catch::Contains("gpipe, 1f1b, interleaved"));
  CHECK_THROWS_WITH(plan({ScheduleKind::gpipe, 2}, 2, 2), Catch::Contains("need the interleaved schedule"));
  CHECK_THROWS_WITH(plan({ScheduleKind::interleaved, 1}, 2, 2), Catch::Contains("two stages a rank"));
  CHECK_THROWS_WITH(plan({ScheduleKind::gpipe, 1}, 2, 0), Catch::Contains("0 micro-batches"));
}

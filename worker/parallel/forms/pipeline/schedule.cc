#include "worker/parallel/forms/pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/rounding.h"

namespace ddprun::pipeline {
namespace {

using Actions = std::vector<Action>;

constexpr std::array<std::pair<std::string_view, ScheduleKind>, 4> names{{
    {"gpipe", ScheduleKind::gpipe},
    {"1f1b", ScheduleKind::one_forward_one_backward},
    {"interleaved", ScheduleKind::interleaved},
    {"zero_bubble", ScheduleKind::zero_bubble},
}};

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::backward_input:
      return "backward_input";
    case ActionKind::backward_weight:
      return "backward_weight";
  }
  return "";
}

Actions gpipe(int rank, const ScheduleOptions& o) {
  Actions actions;
  for (const ActionKind kind : {ActionKind::forward, ActionKind::backward})
    for (int m = 0; m < o.micro_batches; ++m) actions.push_back({kind, rank, m});
  return actions;
}

Actions one_forward_one_backward(int rank, const ScheduleOptions& o) {
  const int ahead = std::min(o.ranks - rank - 1, o.micro_batches);
  Actions actions;
  for (int m = 0; m < o.micro_batches + ahead; ++m) {
    if (m < o.micro_batches) actions.push_back({ActionKind::forward, rank, m});
    if (m >= ahead) actions.push_back({ActionKind::backward, rank, m - ahead});
  }
  return actions;
}

// The gradients of weights follow as many micro-batches later as there are ranks before: a rank that waits for its next
// gradient has some left, and keeps no more activations than the first rank does.
Actions zero_bubble(int rank, const ScheduleOptions& o) {
  Actions actions;
  int weights = 0;
  for (const Action& action : one_forward_one_backward(rank, o)) {
    if (action.kind == ActionKind::forward) {
      actions.push_back(action);
      continue;
    }
    actions.push_back({ActionKind::backward_input, rank, action.micro_batch});
    if (action.micro_batch >= rank) actions.push_back({ActionKind::backward_weight, rank, weights++});
  }
  while (weights < o.micro_batches) actions.push_back({ActionKind::backward_weight, rank, weights++});
  return actions;
}

// Returns the n-th forward pass of a rank: as many micro-batches as there are ranks pass through its first stage, then
// through its next one, and so on; then the next ones.
Action interleaved_forward(int n, int rank, const ScheduleOptions& o) {
  const int group = n / (o.ranks * o.virtual_stages), chunk = n % (o.ranks * o.virtual_stages) / o.ranks;
  return {ActionKind::forward, chunk * o.ranks + rank, group * o.ranks + n % o.ranks};
}

// Returns the n-th backward pass, likewise from the last stage to the first.
Action interleaved_backward(int n, int rank, const ScheduleOptions& o) {
  const Action mirrored = interleaved_forward(n, rank, o);
  const int chunk = o.virtual_stages - 1 - mirrored.stage / o.ranks;
  return {ActionKind::backward, chunk * o.ranks + rank, mirrored.micro_batch};
}

// Plans for a multiple of ranks; micro-batches beyond the given number are left out.
Actions interleaved(int rank, const ScheduleOptions& o) {
  const int groups = divide_up(o.micro_batches, o.ranks);
  const int passes = groups * o.ranks * o.virtual_stages;
  const int ahead = std::min((o.ranks - rank - 1) * 2 + (o.virtual_stages - 1) * o.ranks, passes);
  Actions actions;
  for (int n = 0; n < passes + ahead; ++n) {
    if (n < passes) actions.push_back(interleaved_forward(n, rank, o));
    if (n >= ahead) actions.push_back(interleaved_backward(n - ahead, rank, o));
  }
  std::erase_if(actions, [&](const Action& action) { return action.micro_batch >= o.micro_batches; });
  return actions;
}

Actions plan_rank(ScheduleKind kind, int rank, const ScheduleOptions& options) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return gpipe(rank, options);
    case ScheduleKind::one_forward_one_backward:
      return one_forward_one_backward(rank, options);
    case ScheduleKind::interleaved:
      return interleaved(rank, options);
    case ScheduleKind::zero_bubble:
      return zero_bubble(rank, options);
  }
  return {};
}

void check(ScheduleKind kind, const ScheduleOptions& o) {
  if (o.ranks < 1 || o.micro_batches < 1 || o.virtual_stages < 1)
    throw make_error(Errc::usage, "a pipeline of {} ranks, {} stages a rank and {} micro-batches is not possible",
                     o.ranks, o.virtual_stages, o.micro_batches);
  const bool interleaves = kind == ScheduleKind::interleaved;
  if (interleaves && o.virtual_stages == 1)
    throw Error(Errc::usage, "the interleaved schedule needs two stages a rank at least");
  if (!interleaves && o.virtual_stages > 1)
    throw make_error(Errc::usage, "{} stages a rank need the interleaved schedule", o.virtual_stages);
}

}  // namespace

ScheduleKind parse_schedule(std::string_view name) {
  const auto* const found = std::ranges::find(names, name, [](const auto& row) { return row.first; });
  if (found != names.end()) return found->second;
  throw make_error(Errc::usage, "there is no schedule '{}'; there are: {}", name, fmt::join(schedule_names(), ", "));
}

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> all;
  for (const auto& [name, kind] : names) all.push_back(name);
  return all;
}

std::string to_string(const Action& action) {
  return fmt::format("{} of micro-batch {} at stage {}", name_of(action.kind), action.micro_batch, action.stage);
}

Schedule plan_schedule(ScheduleKind kind, const ScheduleOptions& options) {
  check(kind, options);
  Schedule schedule{.ranks = options.ranks,
                    .stages = options.ranks * options.virtual_stages,
                    .micro_batches = options.micro_batches,
                    .actions = {}};
  for (int rank = 0; rank < options.ranks; ++rank) schedule.actions.push_back(plan_rank(kind, rank, options));
  return schedule;
}

}  // namespace ddprun::pipeline

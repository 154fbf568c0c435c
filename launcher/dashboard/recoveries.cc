#include "launcher/dashboard/recoveries.h"

#include <algorithm>
#include <utility>

#include "launcher/dashboard/faults.h"

namespace ddprun::dashboard {
namespace {

// A process that starts again counts its steps from the one that it resumed at; one that is kept, from its own start.
std::int64_t repeated_steps(const GenerationView& generation, std::int64_t before, const TrainingRecord& record) {
  const auto resumed = generation.replacement > 0 ? std::min(before, record.step - 1) : record.step - record.steps;
  constexpr std::int64_t interrupted = 1;
  return std::max<std::int64_t>(0, before - resumed) + interrupted;
}

}  // namespace

void Recoveries::noticed(Milliseconds now, std::string fault, std::optional<Milliseconds> detect) {
  noticed_ = now;
  fault_ = std::move(fault);
  if (detect) detect_ = detect;
}

void Recoveries::suspect(std::string_view reason) {
  if (fault_ == "membership") fault_ = fault_in(reason);
}

void Recoveries::record(Totals& totals, Milliseconds& duration, const char* phase, Milliseconds value) {
  if (value.count() < 0) return;
  duration = value;
  totals.recovery_times[phase].push_back(value);
}

void Recoveries::begin(JobView& view, Milliseconds now, GenerationView generation) {
  if (generation.recovers) {
    if (detect_) record(view.totals, generation.detect, "detect", *detect_);
    phase_began_ = noticed_.value_or(now);
    ++view.totals.recoveries[std::exchange(fault_, "membership")];
  }
  detect_.reset();
  view.generations.push_back(std::move(generation));
  if (view.generations.size() > limit_) view.generations.erase(view.generations.begin());
}

void Recoveries::started(JobView& view, Milliseconds now, const Round& round) {
  if (view.generations.empty()) return;
  auto& generation = view.generations.back();
  generation.started = now;
  generation.world_size = round.world_size;
  generation.restarts_used = round.restarts_used;
  if (generation.recovers) record(view.totals, generation.agree, "agree", now - phase_began_);
  phase_began_ = now;
  noticed_.reset();
}

std::optional<Recoveries::FirstStep> Recoveries::take(Milliseconds now, Milliseconds accounted,
                                                      const TrainingRecord& record, std::int64_t counted) {
  const auto before = std::exchange(highest_, std::max(highest_, record.step));
  const Milliseconds told(record.first_step_ms);
  // Steps that are repeated after a return to an earlier one are not counted again.
  const bool repeats = record.step <= before && told >= phase_began_;
  if ((record.steps <= counted && !repeats) || std::exchange(stepped_, true)) return std::nullopt;
  // A process that was kept may report the first step of the process group before.
  const auto time = told < phase_began_ ? now : std::clamp(told, std::min(accounted, now), now);
  const bool replays = record.step < before || (record.step == before && told >= phase_began_);
  return FirstStep{.time = time, .replays = replays, .before = before};
}

void Recoveries::record_first_step(JobView& view, const FirstStep& step, const TrainingRecord& record) {
  auto& generation = view.generations.back();
  generation.from_step = step.replays ? step.before : record.step - record.steps;
  if (generation.recovers) {
    view.totals.repeated_steps += repeated_steps(generation, step.before, record);
    const bool heals = generation.replacement > 0;
    Recoveries::record(view.totals, heals ? generation.heal : generation.restart, heals ? "heal" : "restart",
                       step.time - phase_began_);
  }
  phase_began_ = step.time;
}

Milliseconds Recoveries::regained(JobView& view, Milliseconds now) {
  auto& generation = view.generations.back();
  record(view.totals, generation.replay, "replay", now - phase_began_);
  Milliseconds all{};
  for (const auto part : {generation.detect, generation.agree, generation.restart, generation.heal, generation.replay})
    all += std::max(Milliseconds(0), part);
  if (generation.recovers) view.totals.complete_recoveries.push_back(all);
  return all;
}

}  // namespace ddprun::dashboard

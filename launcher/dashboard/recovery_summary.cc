#include "launcher/dashboard/recovery_summary.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddprun::dashboard {
namespace {

// The phases of a recovery in their order.
constexpr std::string_view phases[] = {"detect", "agree", "restart", "heal", "replay"};

// Returns the nearest-rank percentile. REQUIRES: the times are sorted and not empty.
Milliseconds percentile(const std::vector<Milliseconds>& sorted, int percent) {
  const auto rank = (sorted.size() * static_cast<std::size_t>(percent) + 99) / 100;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

std::string distribution(std::string_view name, std::vector<Milliseconds> times) {
  std::ranges::sort(times);
  if (times.size() == 1) return fmt::format("{} {} ms", name, times[0].count());
  return fmt::format("{} p50 {}, p99 {}, max {} ms", name, percentile(times, 50).count(), percentile(times, 99).count(),
                     times.back().count());
}

std::string time_line(const JobView& view) {
  std::vector<std::string> lost;
  for (std::size_t i = 0; i < part_names.size(); ++i) {
    const auto part = static_cast<Part>(i);
    if (part != Part::training && part != Part::startup && view.seconds[i] >= 5e-4)
      lost.push_back(fmt::format("{} {:.3f} s", name_of(part), view.seconds[i]));
  }
  const auto seconds = [&](Part part) { return view.seconds[static_cast<std::size_t>(part)]; };
  return fmt::format("goodput {:.2f} %: {:.3f} s of training; lost: {}; startup {:.3f} s", 100 * goodput(view),
                     seconds(Part::training), lost.empty() ? "nothing" : fmt::format("{}", fmt::join(lost, ", ")),
                     seconds(Part::startup));
}

std::string recovery_line(const JobView& view) {
  const auto& totals = view.totals;
  std::vector<std::string> faults, times;
  for (const auto& [fault, count] : totals.recoveries) faults.push_back(fmt::format("{} {}", fault, count));
  if (!totals.complete_recoveries.empty()) times.push_back(distribution("in all", totals.complete_recoveries));
  for (const auto phase : phases)
    if (const auto found = totals.recovery_times.find(std::string(phase)); found != totals.recovery_times.end())
      times.push_back(distribution(phase, found->second));
  const int number = view.recoveries();
  return fmt::format("{} {} ({}){}{}", number, number == 1 ? "recovery" : "recoveries", fmt::join(faults, ", "),
                     times.empty() ? "" : ": ", fmt::join(times, "; "));
}

// The samples are those of as many steps of mean size: with other numbers of ranks a step may have others.
std::string repeated_line(const Totals& totals) {
  const auto steps = totals.repeated_steps;
  const auto samples = totals.steps > 0 ? totals.samples * steps / totals.steps : 0;
  return fmt::format("{} {} computed again: {} samples", number_text(steps), steps == 1 ? "step was" : "steps were",
                     number_text(samples));
}

}  // namespace

std::vector<std::string> recovery_summary(const JobView& view) {
  if (view.recoveries() == 0 || !view.training || !std::isfinite(goodput(view))) return {};
  std::vector lines{time_line(view), recovery_line(view)};
  if (view.totals.repeated_steps > 0) lines.push_back(repeated_line(view.totals));
  return lines;
}

}  // namespace ddprun::dashboard

#include "worker/profiler/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "worker/profiler/bottleneck.h"

namespace ddprun::profiler {
namespace {

constexpr std::size_t rows_shown = 15;
constexpr std::size_t ranks_shown = 16;

double mib(double bytes) {
  return bytes / (1 << 20);
}

// Returns the time of a step, in milliseconds.
double ms(Seconds time, const Summary& summary) {
  return 1e3 * time.count() / summary.steps;
}

std::string flops_text(const SummaryRow& row) {
  return row.flops > 0 ? fmt::format("{:.1f}", row.flops / row.time.count() / 1e9) : "";
}

bool on_devices(const Summary& summary) {
  return summary.ranks.front().device.has_value();
}

// Returns the host's time for it, beside the device's time.
std::string host_text(const SummaryRow& row, const Summary& summary) {
  return on_devices(summary) ? fmt::format(" {:>9.2f}", ms(row.host, summary)) : "";
}

std::string row_text(const SummaryRow& row, const Summary& summary) {
  const auto share = row.time / summary.ranks.front().times.total();
  return fmt::format("{:<20} {:<8} {:<28} {:>7} {:>9.2f} {:>6.1f} {:>9}{}", row.operation,
                     row.backward ? "backward" : "forward", row.module, row.calls / summary.steps,
                     ms(row.time, summary), 100 * share, flops_text(row), host_text(row, summary));
}

void add_operations(std::vector<std::string>& lines, const Summary& summary) {
  lines.push_back(fmt::format("{:<20} {:<8} {:<28} {:>7} {:>9} {:>6} {:>9}{}", "operation (rank 0)", "pass", "module",
                              "calls", "ms/step", "%", "GFLOP/s",
                              on_devices(summary) ? fmt::format(" {:>9}", "host ms") : ""));
  if (summary.rows.empty())
    lines.push_back(
        "none: the stages of a pipeline over devices compute in threads of their own, which are not recorded");
  const auto shown = std::min(rows_shown, summary.rows.size());
  for (std::size_t i = 0; i < shown; ++i) lines.push_back(row_text(summary.rows[i], summary));
  if (shown == summary.rows.size()) return;
  SummaryRow rest{.operation = fmt::format("{} others", summary.rows.size() - shown), .module = ""};
  for (std::size_t i = shown; i < summary.rows.size(); ++i) {
    rest.time += summary.rows[i].time;
    rest.host += summary.rows[i].host;
    rest.calls += summary.rows[i].calls;
  }
  const auto host = on_devices(summary) ? fmt::format(" {:>9}{}", "", host_text(rest, summary)) : "";
  lines.push_back(fmt::format("{:<20} {:<8} {:<28} {:>7} {:>9.2f} {:>6.1f}{}", rest.operation, "", "",
                              rest.calls / summary.steps, ms(rest.time, summary),
                              100 * (rest.time / summary.ranks.front().times.total()), host));
}

void add_ranks(std::vector<std::string>& lines, const Summary& summary) {
  lines.push_back(fmt::format("{:<20} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>10}", "ms a step of rank", "step",
                              "data", "forward", "backward", "optimizer", "exposed", "hidden", "peak MiB"));
  for (std::size_t r = 0; r < std::min(ranks_shown, summary.ranks.size()); ++r) {
    const auto& rank = summary.ranks[r];
    const auto& t = rank.times;
    lines.push_back(fmt::format("{:<20} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.2f} {:>9.2f} {:>8.2f} {:>8.2f} {:>10.1f}",
                                fmt::format("{} ({})", r, rank.host), ms(t.total(), summary), ms(t.data, summary),
                                ms(t.forward, summary), ms(t.backward, summary), ms(t.optimizer, summary),
                                ms(t.communication(), summary), ms(rank.hidden(), summary),
                                mib(static_cast<double>(rank.peak_bytes))));
  }
  if (summary.ranks.size() > ranks_shown)
    lines.push_back(fmt::format("and {} more ranks", summary.ranks.size() - ranks_shown));
}

// A share of nothing is 0.
int percent(Seconds part, Seconds whole) {
  return whole.count() > 0 ? static_cast<int>(100 * (part / whole) + 0.5) : 0;
}

void add_devices(std::vector<std::string>& lines, const Summary& summary) {
  if (!on_devices(summary)) return;
  lines.emplace_back();
  lines.push_back(fmt::format("{:<20} {:>8} {:>13} {:>9} {:>8} {:>8} {:>8} {}", "ms a step of device", "compute",
                              "communication", "overlap %", "copies", "host", "paced %", " bound by"));
  for (std::size_t r = 0; r < std::min(ranks_shown, summary.ranks.size()); ++r) {
    const auto& rank = summary.ranks[r];
    if (!rank.device) continue;
    const auto& use = *rank.device;
    lines.push_back(
        fmt::format("{:<20} {:>8.2f} {:>13.2f} {:>9} {:>8.2f} {:>8.2f} {:>8}  {}", fmt::format("{} ({})", r, rank.host),
                    ms(rank.times.compute(), summary), ms(rank.transfers, summary), percent(use.hidden, rank.transfers),
                    ms(use.copies, summary), ms(use.queueing, summary), percent(use.paced, rank.times.compute()),
                    is_launch_bound(rank) ? "launches: the device waits for the host" : "the device"));
  }
}

std::string memory_text(const Summary& summary) {
  std::string parts;
  for (const auto& [name, bytes] : summary.memory)
    parts += fmt::format("{}{} {:.1f}", parts.empty() ? "" : ", ", name, mib(static_cast<double>(bytes)));
  return fmt::format("memory of rank 0 at the peak, MiB: {}; {} allocations of {:.1f} MiB a step", parts,
                     summary.allocations / summary.steps, mib(summary.allocated_bytes / summary.steps));
}

std::string flops_line(const Summary& summary) {
  const double own = flops_per_s(summary.rows), best = best_flops_per_s(summary);
  return fmt::format("products and convolutions: {:.1f} GFLOP/s, {:.0f} % of the {:.1f} GFLOP/s of the fastest product",
                     own / 1e9, 100 * own / std::max(1.0, best), best / 1e9);
}

std::string overlap_line(const Overlap& overlap, const Summary& summary) {
  return fmt::format(
      "overlap of rank 0: of {:.2f} ms of communication a step at most {:.2f} can be hidden behind the computation, "
      "and {:.2f} were ({} % of that)",
      ms(overlap.communication, summary), ms(overlap.hideable, summary), ms(overlap.hidden, summary),
      percent(overlap.hidden, overlap.hideable));
}

std::string batch_line(const Summary& summary) {
  if (!summary.larger_batch) return fmt::format("a larger batch was not measured: {}", summary.no_larger_batch);
  return fmt::format("with {} samples a rank: {:.0f} samples/s, {:+.0f} %", summary.larger_batch->batch_size,
                     summary.larger_batch->samples_per_s, 100 * gain_of_larger_batch(summary));
}

}  // namespace

std::vector<std::string> report_of(const Summary& summary) {
  std::vector<std::string> lines{fmt::format("profile of {} steps with {} samples a rank: {:.0f} samples/s",
                                             summary.steps, summary.batch_size, summary.samples_per_s)};
  add_operations(lines, summary);
  lines.emplace_back();
  add_ranks(lines, summary);
  add_devices(lines, summary);
  if (summary.overlap) lines.push_back(overlap_line(*summary.overlap, summary));
  lines.emplace_back();
  lines.push_back(memory_text(summary));
  lines.push_back(flops_line(summary));
  lines.push_back(batch_line(summary));
  lines.push_back("bottleneck: " + bottleneck_of(summary).sentence);
  return lines;
}

}  // namespace ddprun::profiler

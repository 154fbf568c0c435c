#include "worker/profiler/summary.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "worker/profiler/intervals.h"

namespace ddprun::profiler {

std::vector<SummaryRow> rows_of(const std::vector<Event>& events) {
  std::map<std::tuple<std::string, std::string, bool>, SummaryRow> found;
  for (const Event& event : events) {
    if (event.kind != Kind::forward && event.kind != Kind::backward) continue;
    const bool backward = event.kind == Kind::backward;
    SummaryRow& row = found[{event.name, event.module, backward}];
    row.operation = event.name;
    row.module = event.module;
    row.backward = backward;
    ++row.calls;
    row.time += event.self;
    row.host += event.host;
    row.flops += event.flops;
  }
  std::vector<SummaryRow> rows;
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const SummaryRow& a, const SummaryRow& b) { return a.time > b.time; });
  return rows;
}

Seconds covered_by(const std::vector<Event>& events, Kind kind) {
  Intervals intervals;
  for (const Event& event : events)
    if (event.kind == kind) intervals.emplace_back(event.start, event.start + event.duration);
  return length(merged(std::move(intervals)));
}

bool is_launch_bound(const RankSummary& rank) {
  constexpr double most = 0.5;
  return rank.device && rank.device->paced > most * rank.times.compute();
}

double flops_per_s(const std::vector<SummaryRow>& rows) {
  double flops = 0;
  Seconds time{0};
  for (const SummaryRow& row : rows) {
    if (row.flops == 0) continue;
    flops += row.flops;
    time += row.time;
  }
  return time.count() > 0 ? flops / time.count() : 0;
}

double best_flops_per_s(const Summary& summary) {
  double best = summary.peak_flops;
  for (const SummaryRow& row : summary.rows)
    if (row.time.count() > 0) best = std::max(best, row.flops / row.time.count());
  return best;
}

double gain_of_larger_batch(const Summary& summary) {
  if (!summary.larger_batch || summary.samples_per_s <= 0) return 0;
  return summary.larger_batch->samples_per_s / summary.samples_per_s - 1;
}

}  // namespace ddprun::profiler

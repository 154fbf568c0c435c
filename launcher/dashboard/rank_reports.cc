#include "launcher/dashboard/rank_reports.h"

#include <algorithm>
#include <cmath>

namespace ddprun::dashboard {
namespace {

// Returns whether the numbers are equal, or both unknown.
bool same_number(double one, double other) {
  return one == other || (std::isnan(one) && std::isnan(other));
}

double to_percent(double part, double all = 1) {
  return std::round(100 * part / all) / 100;
}

}  // namespace

RankView::State state_of(const WorkerReport& worker) {
  if (worker.state == WorkerReport::State::running) return RankView::State::running;
  if (worker.state == WorkerReport::State::stopped) return RankView::State::stopped;
  return worker.exit_code == 0 && worker.signal_number == 0 ? RankView::State::succeeded : RankView::State::failed;
}

double to_two_digits(double lateness) {
  if (!std::isfinite(lateness) || lateness < 1e-5) return std::isfinite(lateness) ? 0 : lateness;
  const double unit = std::pow(10, std::floor(std::log10(lateness)) - 1);
  return std::round(lateness / unit) * unit;
}

std::array<double, 3> shares_of(const TrainingRecord& record) {
  const double all = record.step_seconds();
  if (all <= 0) return {TrainingRecord::unknown, 0, 0};
  return {to_percent(record.data, all), to_percent(record.compute, all), to_percent(record.communication, all)};
}

std::array<double, 3> shares_of(const TrainingReport& report) {
  if (!std::isfinite(report.data)) return {TrainingRecord::unknown, 0, 0};
  return {to_percent(report.data), to_percent(report.compute), to_percent(report.communication)};
}

bool same(const RankView& one, const RankView& other) {
  return one.pid == other.pid && one.state == other.state && one.started == other.started &&
         same_number(one.lateness, other.lateness) && same_number(one.shares[0], other.shares[0]) &&
         one.shares[1] == other.shares[1] && one.shares[2] == other.shares[2];
}

bool same(const CollectiveView& one, const CollectiveView& other) {
  return one.group == other.group && one.operation == other.operation && one.bytes == other.bytes &&
         one.count == other.count && one.seconds == other.seconds && same_number(one.median, other.median) &&
         same_number(one.bus_bandwidth, other.bus_bandwidth) && one.slowest == other.slowest &&
         same_number(one.wait, other.wait);
}

bool same(const NodeUsage& one, const NodeUsage& other) {
  const auto near = [](double a, double b, double all) { return std::abs(a - b) <= all / 100; };
  const auto bytes = [](std::int64_t size) { return static_cast<double>(size); };
  const double network = std::max({one.received, one.sent, other.received, other.sent, 1e5});
  return near(one.busy, other.busy, other.processors) &&
         near(bytes(one.memory_used), bytes(other.memory_used), bytes(other.memory)) &&
         near(bytes(one.shared_memory_used), bytes(other.shared_memory_used), bytes(other.shared_memory)) &&
         near(one.received, other.received, network) && near(one.sent, other.sent, network);
}

}  // namespace ddprun::dashboard

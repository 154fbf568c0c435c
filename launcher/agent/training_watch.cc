#include "launcher/agent/training_watch.h"

#include <algorithm>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "common/log.h"

namespace ddprun {
namespace {

TrainingReport report_of(const TrainingRecord& record) {
  const double all = record.step_seconds();
  const auto share = [&](double part) { return all > 0 ? part / all : TrainingRecord::unknown; };
  return {.step = record.step,
          .total_steps = record.total_steps,
          .epoch = record.epoch,
          .loss = record.loss,
          .samples_per_s = record.samples_per_s,
          .seconds_left = record.seconds_left,
          .lateness = record.lateness,
          .step_seconds = record.steps > 0 ? all / static_cast<double>(record.steps) : TrainingRecord::unknown,
          .data = share(record.data),
          .compute = share(record.compute),
          .communication = share(record.communication)};
}

}  // namespace

TrainingWatch::TrainingWatch(boost::asio::io_context& loop, int workers)
    : reported_ms_(static_cast<std::size_t>(workers)), timer_(loop), soon_(loop) {
  try {
    memory_.emplace(workers);
  } catch (const Error& e) {
    log::warn("ddprun status will not show the training of this node: {}", e.what());
  }
}

void TrainingWatch::clear() {
  if (memory_) memory_->clear();
  std::fill(reported_ms_.begin(), reported_ms_.end(), 0);
}

std::optional<TrainingRecord> TrainingWatch::record(int local_rank, std::int64_t pid) const {
  auto record = memory_ ? memory_->read(local_rank) : std::nullopt;
  if (record && record->pid != pid) record.reset();
  return record;
}

std::vector<std::pair<int, TrainingRecord>> TrainingWatch::records(const std::vector<WorkerReport>& workers) const {
  std::vector<std::pair<int, TrainingRecord>> records;
  for (const auto& worker : workers)
    if (const auto found = record(worker.local_rank, worker.pid)) records.emplace_back(worker.local_rank, *found);
  return records;
}

bool TrainingWatch::want_standby(const std::vector<WorkerReport>& workers) const {
  return std::ranges::all_of(workers, [this](const WorkerReport& worker) {
    const auto found = record(worker.local_rank, worker.pid);
    return found && found->wants_standby != 0 && found->first_step_ms != 0;
  });
}

std::vector<WorkerReport> TrainingWatch::with_training(std::vector<WorkerReport> workers) const {
  for (auto& worker : workers)
    if (const auto found = record(worker.local_rank, worker.pid)) worker.training = report_of(*found);
  return workers;
}

std::vector<WorkerReport> TrainingWatch::changed(std::vector<WorkerReport> workers) {
  std::vector<WorkerReport> changed;
  for (auto& worker : workers) {
    const auto found = record(worker.local_rank, worker.pid);
    if (!found) continue;
    if (std::exchange(reported_ms_.at(static_cast<std::size_t>(worker.local_rank)), found->time_ms) == found->time_ms)
      continue;
    worker.training = report_of(*found);
    changed.push_back(std::move(worker));
  }
  return changed;
}

void TrainingWatch::every(std::chrono::milliseconds interval, std::function<void()> handler) {
  interval_ = interval;
  handler_ = std::move(handler);
  wait();
}

void TrainingWatch::soon(std::function<bool()> handler) {
  soon_handler_ = std::move(handler);
  try_after(std::chrono::milliseconds(25));
}

void TrainingWatch::try_after(std::chrono::milliseconds pause) {
  soon_.run_after(pause, [this, pause] {
    if (!soon_handler_() && 2 * pause <= interval_) try_after(2 * pause);
  });
}

void TrainingWatch::wait() {
  timer_.run_after(interval_, [this] {
    handler_();
    wait();
  });
}

}  // namespace ddprun

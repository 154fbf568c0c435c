#include "ddprun/worker/comm/transport/lane_executor.h"

#include <algorithm>
#include <utility>

#include "ddprun/worker/comm/transport/quiet_thread.h"

namespace ddprun::comm {

LaneExecutor::LaneExecutor(Transport& transport, GroupHealth& health, Seat seat)
    : Executor(transport, health, seat),
      lanes_(static_cast<std::size_t>(std::clamp(transport.lanes(), 1, Ledger::most_in_progress))) {}

WorkPtr LaneExecutor::submit(const Call& call, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (const auto cause = health_.cause()) return failed_work(*cause);
  health_.begin();
  const auto sequence = next_sequence_++;
  auto work = std::make_shared<Completion>(call.operation);
  health_.ledger().submit(call.operation, sequence, timeout);
  queue_.push({{call, sequence, timeout}, work});
  if (++pending_ > threads_.size() && threads_.size() < lanes_) {
    threads_.push_back(start_quiet_thread([this] { this->work(); }));
  }
  return work;
}

void LaneExecutor::work() {
  while (auto begun = begin_next()) {
    auto& [job, place] = *begun;
    const auto error = carry_out(job.collective, place);
    --pending_;
    health_.finish(*job.work, error);
  }
}

// One idle lane waits for the queue, the others for that one: so collectives begin in their order.
std::optional<LaneExecutor::Begun> LaneExecutor::begin_next() {
  const std::lock_guard lock(beginning_);
  auto job = queue_.pop();
  if (!job) return std::nullopt;
  const auto place = note_begin(job->collective);
  return Begun{std::move(*job), place};
}

void LaneExecutor::drop(const Error& cause) {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);  // whoever submits now sees the cause, or is seen here
    dropped = queue_.take_all();
  }
  pending_ -= dropped.size();
  for (const auto& job : dropped) health_.finish(*job.work, cause);
}

void LaneExecutor::end() {
  queue_.close();
  for (auto& thread : std::exchange(threads_, {})) thread.join();
}

}  // namespace ddprun::comm

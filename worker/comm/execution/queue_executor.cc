#include "ddprun/worker/comm/execution/queue_executor.h"

#include <algorithm>
#include <utility>

#include "ddprun/common/blocked_signals.h"

namespace ddprun::comm {

QueueExecutor::QueueExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info)
    : Executor(transport, health, rank_info),
      concurrency_(static_cast<std::size_t>(std::clamp(transport.lanes(), 1, OperationLog::most_in_progress))) {}

WorkPtr QueueExecutor::submit(const Call& call, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (const auto cause = health_.cause()) return failed_work(*cause);
  Job job{{call, next_sequence_++, timeout}, nullptr};
  if (call.options.blocking && queue_.empty() && lane_free()) {
    auto begun = begin(std::move(job));
    lock.unlock();
    return execute_inline(std::move(begun));
  }
  health_.begin();
  health_.operation_log().submit(call.operation, job.collective.sequence, timeout);
  auto work = job.work = std::make_shared<Completion>(call.operation);
  queue_.push_back(std::move(job));
  if (under_way_ + queue_.size() > threads_.size() && threads_.size() < concurrency_) {
    threads_.push_back(start_signal_free_thread([this] { this->work(); }));
  }
  changed_.notify_one();
  return work;
}

// No work is made, and none is counted: nobody may destroy the group meanwhile.
WorkPtr QueueExecutor::execute_inline(Begun begun) {
  const BlockedSignals blocked(BlockedSignals::OfPipes{});  // it may write to what a peer has closed
  const auto error = finish(std::move(begun));
  return error ? failed_work(*error) : completed_work();
}

void QueueExecutor::work() {
  while (auto begun = begin_next()) {
    const auto work = begun->job.work;
    const auto error = finish(std::move(*begun));
    health_.finish(*work, error);
  }
}

std::optional<QueueExecutor::Begun> QueueExecutor::begin_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || (!queue_.empty() && lane_free()); });
  if (closed_) return std::nullopt;
  auto job = std::move(queue_.front());
  queue_.pop_front();
  return begin(std::move(job));
}

// Under mutex_.
QueueExecutor::Begun QueueExecutor::begin(Job job) {
  ++under_way_;
  const auto slot = note_begin(job.collective);
  return {std::move(job), slot};
}

std::optional<Error> QueueExecutor::finish(Begun begun) {
  auto error = execute(begun.job.collective, begun.slot);
  const std::lock_guard lock(mutex_);
  --under_way_;
  if (!queue_.empty()) changed_.notify_one();
  return error;
}

void QueueExecutor::drop(const Error& cause) {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);  // whoever submits now sees the cause, or is seen here
    dropped = std::exchange(queue_, {});
  }
  for (const auto& job : dropped) health_.finish(*job.work, cause);
}

void QueueExecutor::end() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  for (auto& thread : std::exchange(threads_, {})) thread.join();
}

}  // namespace ddprun::comm

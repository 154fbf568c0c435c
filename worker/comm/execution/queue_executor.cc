#include "worker/comm/execution/queue_executor.h"

#include <algorithm>
#include <utility>

#include "common/blocked_signals.h"

namespace ddprun::comm {

QueueExecutor::QueueExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info)
    : health_(health),
      runner_(transport, health, rank_info),
      concurrency_(
          static_cast<std::size_t>(std::clamp(transport.traits().concurrency, 1, OperationLog::most_in_progress))) {}

WorkPtr QueueExecutor::submit(const Call& call, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (const auto cause = health_.cause()) return failed_work(*cause);
  Job job{{call, next_sequence_++, timeout}, nullptr};
  if (call.options.blocking && queue_.empty() && below_limit()) {
    auto started = start(std::move(job));
    lock.unlock();
    return execute_inline(std::move(started));
  }
  health_.begin();
  health_.operation_log().submit(call.operation, job.collective.sequence, timeout);
  auto work = job.work = std::make_shared<Completion>(call.operation);
  queue_.push_back(std::move(job));
  if (executing_ + queue_.size() > threads_.size() && threads_.size() < concurrency_) {
    threads_.push_back(start_signal_free_thread([this] { run_queue(); }));
  }
  changed_.notify_one();
  return work;
}

// This needs no Completion and is not counted as unfinished: the caller may not destroy the group during its own call.
WorkPtr QueueExecutor::execute_inline(Started started) {
  const BlockedSignals blocked(BlockedSignals::OfPipes{});  // SIGPIPE, as it may write to a closed connection
  const auto error = execute(std::move(started));
  return error ? failed_work(*error) : completed_work();
}

void QueueExecutor::run_queue() {
  while (auto started = start_next()) {
    const auto work = started->job.work;
    const auto error = execute(std::move(*started));
    health_.finish(*work, error);
  }
}

std::optional<QueueExecutor::Started> QueueExecutor::start_next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || (!queue_.empty() && below_limit()); });
  if (closed_) return std::nullopt;
  auto job = std::move(queue_.front());
  queue_.pop_front();
  return start(std::move(job));
}

// REQUIRES mutex_.
QueueExecutor::Started QueueExecutor::start(Job job) {
  ++executing_;
  const auto slot = runner_.log_begin(job.collective);
  return {std::move(job), slot};
}

std::optional<Error> QueueExecutor::execute(Started started) {
  auto& collective = started.job.collective;
  auto error = runner_.run(collective, started.slot, runner_.passes_unchanged(collective));
  const std::lock_guard lock(mutex_);
  --executing_;
  if (!queue_.empty()) changed_.notify_one();
  return error;
}

void QueueExecutor::cancel(const Error& cause) {
  std::deque<Job> cancelled;
  {
    const std::lock_guard lock(mutex_);  // a concurrent submit() either sees the cause or is in the queue
    cancelled = std::exchange(queue_, {});
  }
  for (const auto& job : cancelled) health_.finish(*job.work, cause);
}

void QueueExecutor::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  for (auto& thread : std::exchange(threads_, {})) thread.join();
}

}  // namespace ddprun::comm

#include "ddprun/worker/comm/execution/caller_runs_executor.h"

#include "ddprun/common/blocked_signals.h"

namespace ddprun::comm {
namespace {

// How often the executor's thread tests started collectives for which no thread waits.
constexpr std::chrono::milliseconds started_poll(50);
// How often it looks for queued ones that no caller has executed, when callers are expected to wait at once.
constexpr std::chrono::microseconds queued_poll(500);

constexpr Deadline::Clock::time_point at_once = Deadline::Clock::time_point::min();

}  // namespace

CallerRunsExecutor::CallerRunsExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info)
    : health_(health),
      runner_(transport, health, rank_info),
      collectives_(*transport.nonblocking()),
      queue_(progress_->wait_predictor(), queued_poll),
      thread_(start_signal_free_thread([this] { run_queue(); })) {}

void CallerRunsExecutor::shutdown() {
  progress_->detach();  // waits for the holder of the progress lock
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

// Executes a blocking collective on its caller's thread, at the cost of one lock: it needs no Completion and is not
// counted as unfinished, as the caller may not destroy the group during its own call. Null when others are pending or
// the group is broken.
[[gnu::always_inline]] inline WorkPtr CallerRunsExecutor::execute_inline(const Call& call,
                                                                         std::chrono::milliseconds timeout) {
  const std::unique_lock progress_lock(progress_->lock(), std::try_to_lock);
  if (!progress_lock || queued_count_ > 0 || health_.broken()) return nullptr;
  if (started_count_ > 0) {
    finish_all();
    if (health_.broken()) return nullptr;
  }
  Collective collective{call, next_sequence_++, timeout};
  // Before the operation log is written, so that this happens while the peers proceed.
  const bool unchanged = runner_.passes_unchanged(collective);
  if (unchanged) collectives_.announce(collective);
  const auto error = runner_.run(collective, runner_.log_begin(collective), unchanged);
  return error ? failed_work(*error) : completed_work();
}

// REQUIRES mutex_ and the progress lock. Returns at once.
[[gnu::always_inline]] inline bool CallerRunsExecutor::try_start(Job& job) {
  if (!runner_.passes_unchanged(job.collective) || !collectives_.start(job.collective)) return false;
  job.slot = runner_.log_begin(job.collective);
  started_.push_back(std::move(job));
  ++started_count_;
  return true;
}

WorkPtr CallerRunsExecutor::submit(const Call& call, std::chrono::milliseconds timeout) {
  if (call.options.blocking)
    if (auto work = execute_inline(call, timeout)) return work;
  if (started_count_ > 0) test_all();
  const std::lock_guard lock(mutex_);
  if (const auto cause = health_.cause()) return failed_work(*cause);
  health_.begin();
  const auto work = std::make_shared<PollingWork>(call.operation, progress_);
  Job job{{call, next_sequence_++, timeout}, work};
  std::unique_lock progress_lock(progress_->lock(), std::defer_lock);
  if (queued_count_ == 0 && progress_lock.try_lock() && try_start(job)) return work;
  ++queued_count_;
  work->note_queued();
  health_.operation_log().submit(call.operation, job.collective.sequence, timeout);
  queue_.push(std::move(job));
  return work;
}

// REQUIRES the progress lock. False when none is started, or the oldest has not finished by the deadline.
bool CallerRunsExecutor::test_oldest(const Deadline& deadline) {
  if (started_count_ == 0) return false;
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (started_.empty()) return false;
    job = started_.front();
    testing_oldest_ = true;
  }
  std::optional<Error> error;
  bool finished = false;
  try {
    finished = collectives_.test(job.collective, deadline);
  } catch (const std::exception& failure) {
    error = health_.explain(job.slot, job.collective.operation, failure);
  }
  {
    const std::lock_guard lock(mutex_);
    testing_oldest_ = false;
    if (!finished && !error) error = health_.cause();  // cancel() skipped this one
    if (!finished && !error) return false;
    started_.pop_front();
    --started_count_;
  }
  health_.operation_log().end(job.slot, error.has_value());
  health_.finish(*job.work, error);
  return true;
}

// Finishes the started ones that are done.
void CallerRunsExecutor::test_all() {
  const std::unique_lock progress_lock(progress_->lock(), std::try_to_lock);
  while (progress_lock && test_oldest(Deadline::at(at_once))) continue;
}

// REQUIRES the progress lock. Waits for the started ones.
void CallerRunsExecutor::finish_all() {
  while (test_oldest(Deadline::never())) continue;
}

bool CallerRunsExecutor::progress(const Deadline& deadline) {
  if (started_count_ > 0) {
    test_oldest(deadline);
    return true;
  }
  if (deadline.when()) {  // a queued one, once begun, is executed to its end whatever the deadline
    queue_.hand_over();
    return false;
  }
  auto job = queue_.try_pop();
  if (!job) return false;
  const auto error = execute_queued(*job);
  --queued_count_;
  health_.finish(*job->work, error);
  return true;
}

// Nothing is executed in a broken group: for the transport, the started ones before it are unfinished.
std::optional<Error> CallerRunsExecutor::execute_queued(Job& job) {
  if (auto cause = health_.cause()) return cause;
  const auto place = runner_.log_begin(job.collective);
  return runner_.run(job.collective, place, runner_.passes_unchanged(job.collective));
}

// Also tests the started ones for which no thread waits, as their timeouts run.
void CallerRunsExecutor::run_queue() {
  while (queue_.await_item(started_poll)) {
    std::unique_lock progress_lock(progress_->lock());
    auto job = queue_.try_pop();
    if (!job) {
      progress_lock.unlock();
      test_all();
      continue;
    }
    finish_all();
    const auto error = execute_queued(*job);
    --queued_count_;
    progress_lock.unlock();
    health_.finish(*job->work, error);
  }
}

void CallerRunsExecutor::cancel(const Error& cause) {
  std::deque<Job> cancelled;
  {
    const std::lock_guard lock(mutex_);
    // The thread in test_oldest() fails the oldest itself: the memory is in use until test() returns.
    while (started_.size() > (testing_oldest_ ? 1 : 0)) {
      cancelled.push_front(std::move(started_.back()));
      started_.pop_back();
      --started_count_;
    }
    for (auto& job : queue_.take_all()) {
      --queued_count_;
      cancelled.push_back(std::move(job));
    }
  }
  for (const auto& job : cancelled) {
    health_.operation_log().end(job.slot, true);
    health_.finish(*job.work, cause);
  }
}

}  // namespace ddprun::comm

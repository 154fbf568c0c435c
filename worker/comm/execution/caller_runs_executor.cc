#include "ddprun/worker/comm/execution/caller_runs_executor.h"

#include "ddprun/common/blocked_signals.h"
#include "ddprun/worker/comm/operations/composed.h"

namespace ddprun::comm {
namespace {

// How often the executor's thread looks for collectives that were posted and that nobody waits for.
constexpr std::chrono::milliseconds posted_look(50);
// How often it looks for queued ones that callers have left to it, where they are expected to come at once.
constexpr std::chrono::microseconds queued_look(500);

}  // namespace

CallerRunsExecutor::CallerRunsExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info)
    : Executor(transport, health, rank_info),
      queue_(turn_->prompt_waits(), queued_look),
      thread_(start_signal_free_thread([this] { work(); })) {}

void CallerRunsExecutor::end() {
  turn_->end();  // waits for whoever has it
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

WorkPtr CallerRunsExecutor::submit(const Call& call, std::chrono::milliseconds timeout) {
  if (call.options.blocking)
    if (auto work = execute_inline(call, timeout)) return work;
  finish_ready();
  const std::lock_guard lock(mutex_);
  if (const auto cause = health_.cause()) return failed_work(*cause);
  health_.begin();
  const Collective collective{call, next_sequence_++, timeout};
  const auto work = std::make_shared<PollingWork>(call.operation, turn_);
  Job job{collective, work};
  std::unique_lock turn(turn_->lock(), std::defer_lock);
  if (queued_ == 0 && turn.try_lock() && post(job)) return work;
  ++queued_;
  work->note_queued();
  health_.operation_log().submit(call.operation, collective.sequence, timeout);
  queue_.push(std::move(job));
  return work;
}

// Under mutex_ and with the turn: returns at once.
bool CallerRunsExecutor::post(Job& job) {
  if (!passes_unchanged(job.collective) || !transport_.post(job.collective)) return false;
  job.slot = note_begin(job.collective);
  posted_.push_back(std::move(job));
  ++any_posted_;
  return true;
}

// What can be finished without waiting.
void CallerRunsExecutor::finish_ready() {
  if (any_posted_ == 0) return;
  const std::unique_lock turn(turn_->lock(), std::try_to_lock);
  while (turn && finish_oldest_posted(Deadline::at(Deadline::Clock::time_point::min()))) continue;
}

// A blocking call on its caller's thread, at the price of one lock: no work is made, and none is counted, as nobody may
// destroy the group meanwhile. None when others are before it, or the group is broken.
WorkPtr CallerRunsExecutor::execute_inline(const Call& call, std::chrono::milliseconds timeout) {
  const std::unique_lock turn(turn_->lock(), std::try_to_lock);
  if (!turn || queued_ > 0 || health_.broken()) return nullptr;
  if (any_posted_ > 0) {
    finish_all_posted();
    if (health_.broken()) return nullptr;
  }
  Collective collective{call, next_sequence_++, timeout};
  // The others hear of it first: the operation_log is written while they come.
  const bool unchanged = passes_unchanged(collective);
  if (unchanged) transport_.announce(collective);
  const auto error = execute(collective, note_begin(collective), unchanged);
  return error ? failed_work(*error) : completed_work();
}

// With the turn. False when there is none, or it is not finished by the deadline.
bool CallerRunsExecutor::finish_oldest_posted(const Deadline& deadline) {
  if (any_posted_ == 0) return false;
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (posted_.empty()) return false;
    job = posted_.front();
    finishing_posted_ = true;
  }
  std::optional<Error> error;
  bool finished = false;
  try {
    finished = transport_.finish_posted(job.collective, deadline);
  } catch (const std::exception& failure) {
    error = health_.explain(job.slot, job.collective.operation, failure);
  }
  {
    const std::lock_guard lock(mutex_);
    finishing_posted_ = false;
    if (!finished && !error) error = health_.cause();  // whoever broke the group left this one alone
    if (!finished && !error) return false;
    posted_.pop_front();
    --any_posted_;
  }
  health_.operation_log().end(job.slot, error.has_value());
  health_.finish(*job.work, error);
  return true;
}

void CallerRunsExecutor::finish_all_posted() {
  while (finish_oldest_posted(Deadline::never())) continue;
}

bool CallerRunsExecutor::progress(const Deadline& deadline) {
  if (any_posted_ > 0) {
    finish_oldest_posted(deadline);
    return true;
  }
  if (deadline.when()) {  // once begun, one that was queued is carried out to its end
    queue_.hand_over();
    return false;
  }
  auto job = queue_.try_pop();
  if (!job) return false;
  const auto error = execute_queued(*job);
  --queued_;
  health_.finish(*job->work, error);
  return true;
}

// Nothing begins in a group that is broken: what was posted before it has not ended, as far as the transport knows.
std::optional<Error> CallerRunsExecutor::execute_queued(Job& job) {
  if (auto cause = health_.cause()) return cause;
  return execute(job.collective, note_begin(job.collective));
}

// Also looks after what was posted and nobody waits for: its deadline runs.
void CallerRunsExecutor::work() {
  while (queue_.await_item(posted_look)) {
    std::unique_lock turn(turn_->lock());
    auto job = queue_.try_pop();
    if (!job) {
      turn.unlock();
      finish_ready();
      continue;
    }
    finish_all_posted();
    const auto error = execute_queued(*job);
    --queued_;
    turn.unlock();
    health_.finish(*job->work, error);
  }
}

void CallerRunsExecutor::drop(const Error& cause) {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    // The one that is being finished is left to whoever does: its memory is in use.
    while (posted_.size() > (finishing_posted_ ? 1 : 0)) {
      dropped.push_front(std::move(posted_.back()));
      posted_.pop_back();
      --any_posted_;
    }
    for (auto& job : queue_.take_all()) {
      --queued_;
      dropped.push_back(std::move(job));
    }
  }
  for (const auto& job : dropped) {
    health_.operation_log().end(job.slot, true);
    health_.finish(*job.work, cause);
  }
}

}  // namespace ddprun::comm

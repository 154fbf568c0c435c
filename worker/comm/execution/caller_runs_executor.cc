#include "worker/comm/execution/caller_runs_executor.h"

#include <system_error>
#include <utility>

#include "common/blocked_signals.h"
#include "common/log.h"

namespace ddprun::comm {
namespace {

// The interval at which the executor's thread tests started collectives for which no thread waits.
constexpr std::chrono::milliseconds started_poll(50);
// The interval at which it looks for queued ones that no caller has executed, if callers are expected to wait at once.
constexpr std::chrono::microseconds queued_poll(500);
// The time that a waiter sleeps while another thread holds the progress lock before it tries to take the lock itself.
constexpr std::chrono::microseconds retry_interval(500);

// The time that the caller of a collective waits for the other ranks where a second thread would take its core: longer
// than ranks that train in step are apart.
constexpr std::chrono::milliseconds meeting_bound(8);

constexpr Deadline::Clock::time_point at_once = Deadline::Clock::time_point::min();

}  // namespace

// Shared by the executor and its works, which may outlive it.
struct CallerRunsExecutor::ProgressToken {
  explicit ProgressToken(CallerRunsExecutor& owner) : executor(&owner) {}
  SyncWaitPredictor wait_predictor;  // for the callers of queued collectives
  ProgressLock lock;                 // held by the thread that executes collectives
  CallerRunsExecutor* executor;      // guarded by the lock; null once it is shut down
};

// A started or queued collective. It is executed, with those before it, by the thread that waits for it, unless another
// thread is doing so: this saves two thread switches.
class CallerRunsExecutor::PendingWork final : public Completion {
 public:
  PendingWork(const Collective& pending, std::shared_ptr<ProgressToken> token)
      : Completion(pending.operation), collective(pending), token_(std::move(token)) {}

  // Called before other threads see this work.
  void record_queued() { queued_ = SyncWaitPredictor::Clock::now(); }

  void wait(Deadline deadline) override {
    if (queued_) token_->wait_predictor.note(SyncWaitPredictor::Clock::now() - *queued_);
    while (!finished() && !deadline.expired()) {
      if (!try_progress(deadline)) wait_done(earlier(deadline, Deadline::in(retry_interval)));
    }
    Completion::wait(deadline);
  }
  void order(void* stream, float* cancelled) override {
    {
      const std::lock_guard lock(token_->lock);
      if (!finished() && token_->executor && token_->executor->order(*this, stream, cancelled)) return;
    }
    wait(Deadline::never());
  }
  bool done() const override {
    if (!finished()) try_progress(Deadline::at(at_once));
    return finished();
  }

  Collective collective;
  OperationLog::Slot slot = OperationLog::no_slot;  // set once started

 private:
  // Returns false when there was nothing for this thread to do.
  bool try_progress(const Deadline& deadline) const {
    const std::unique_lock lock(token_->lock, std::try_to_lock);
    if (!lock) return false;
    return finished() || (token_->executor && token_->executor->progress(deadline));
  }

  const std::shared_ptr<ProgressToken> token_;
  std::optional<SyncWaitPredictor::Clock::time_point> queued_;
};

CallerRunsExecutor::CallerRunsExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info)
    : health_(health),
      runner_(transport, health, rank_info),
      collectives_(*transport.nonblocking()),
      token_(std::make_shared<ProgressToken>(*this)),
      queue_(token_->wait_predictor, queued_poll),
      shares_poller_(collectives_.tests_at_once()) {
  if (shares_poller_)
    polling_.emplace(StartedPoller::of_process([this] { collectives_.begin_thread(); }), [this] { poll(); });
  else
    thread_ = start_signal_free_thread([this] { run_queue(); });
}

void CallerRunsExecutor::shutdown() {
  polling_.reset();
  {
    const std::lock_guard progress_lock(token_->lock);
    token_->executor = nullptr;
  }
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

// Executes a blocking collective on its caller's thread, at the cost of one lock: it needs no Completion and is not
// counted as unfinished, as the caller may not destroy the group during its own call. Returns null when others are
// pending or the group is broken.
[[gnu::always_inline]] inline WorkPtr CallerRunsExecutor::execute_inline(const Call& call,
                                                                         std::chrono::milliseconds timeout) {
  const std::unique_lock progress_lock(token_->lock, std::try_to_lock);
  if (!progress_lock || queued_count_ > 0 || health_.broken()) return nullptr;
  if (started_count_ > 0) {
    finish_all();
    if (health_.broken()) return nullptr;
  }
  Collective collective{call, next_sequence_++, timeout};
  // This comes before the operation log is written, so that it happens while the peers proceed.
  const bool unchanged = runner_.passes_unchanged(collective);
  if (unchanged) collectives_.announce(collective);
  const auto error = runner_.run(collective, runner_.log_begin(collective), unchanged);
  return error ? failed_work(*error) : completed_work();
}

WorkPtr CallerRunsExecutor::submit(const Call& call, std::chrono::milliseconds timeout) {
  if (call.options.blocking)
    if (auto work = execute_inline(call, timeout)) return work;
  if (started_count_ > 0) test_all();
  auto progress_lock = shares_poller_ ? lock_progress() : std::unique_lock(token_->lock, std::defer_lock);
  std::unique_lock lock(mutex_);
  if (const auto cause = health_.cause()) return failed_work(*cause);
  health_.begin();
  auto work = std::make_shared<PendingWork>(Collective{call, next_sequence_++, timeout}, token_);
  if (!progress_lock) static_cast<void>(progress_lock.try_lock());
  if (queued_count_ > 0 || !progress_lock) {
    enqueue(work);
  } else if (!try_start(work)) {
    if (started_count_ > 0) {
      enqueue(work);
    } else {
      count_queued(*work);
      lock.unlock();
      execute_if_met(work);
    }
  }
  return work;
}

// Waits for the shared thread, which soon releases the lock, and for no other: what could not be started is queued.
std::unique_lock<ProgressLock> CallerRunsExecutor::lock_progress() {
  std::unique_lock lock(token_->lock, std::try_to_lock);
  while (!lock && polled_) {
    std::this_thread::yield();
    static_cast<void>(lock.try_lock());
  }
  if (!lock) static_cast<void>(lock.try_lock());  // it may have been released in between
  return lock;
}

// REQUIRES mutex_ and the progress lock. Returns at once.
inline bool CallerRunsExecutor::try_start(const PendingPtr& work) {
  if (!runner_.passes_unchanged(work->collective) || !collectives_.start(work->collective)) return false;
  work->slot = runner_.log_begin(work->collective);
  started_.push_back(work);
  ++started_count_;
  return true;
}

// REQUIRES mutex_.
void CallerRunsExecutor::enqueue(const PendingPtr& work) {
  count_queued(*work);
  work->record_queued();
  need_thread();
  queue_.push(work);
}

// REQUIRES mutex_. Without a thread, one that waits for a queued collective executes it.
void CallerRunsExecutor::need_thread() noexcept try {
  if (!thread_.joinable()) thread_ = start_signal_free_thread([this] { run_queue(); });
} catch (const std::system_error& error) {
  log::debug("a group has no thread of its own: {}", error.what());
}

// REQUIRES mutex_.
void CallerRunsExecutor::count_queued(PendingWork& work) {
  ++queued_count_;
  const auto& collective = work.collective;
  health_.operation_log().submit(collective.operation, collective.sequence, collective.timeout);
}

// REQUIRES the progress lock; none is started, and no other was queued before this one. Executes it if all ranks
// announce it within meeting_bound, else queues it ahead of what other threads have queued meanwhile.
void CallerRunsExecutor::execute_if_met(const PendingPtr& work) {
  const auto& collective = work->collective;
  if (runner_.passes_unchanged(collective) && collectives_.meet(collective, Deadline::in(meeting_bound)))
    return finish_queued(*work);
  std::unique_lock lock(mutex_);
  if (!health_.broken()) {  // else cancel() may have been here
    work->record_queued();
    need_thread();
    return queue_.push_front(work);
  }
  lock.unlock();
  finish_queued(*work);
}

// REQUIRES the progress lock. Returns false for a work that is only queued.
bool CallerRunsExecutor::order(const PendingWork& work, void* stream, float* cancelled) {
  return work.slot != OperationLog::no_slot && collectives_.order(work.collective, stream, cancelled);
}

// REQUIRES the progress lock. Returns false when none is started, or the oldest has not finished by the deadline.
bool CallerRunsExecutor::test_oldest(const Deadline& deadline) {
  if (started_count_ == 0) return false;
  PendingWork* oldest = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (started_.empty()) return false;
    oldest = started_.front().get();
    testing_oldest_ = true;  // keeps it in started_
  }
  std::optional<Error> error;
  bool finished = false;
  try {
    finished = collectives_.test(oldest->collective, deadline);
  } catch (const std::exception& failure) {
    error = health_.explain(oldest->slot, oldest->collective.operation, failure);
  }
  PendingPtr ended;
  {
    const std::lock_guard lock(mutex_);
    testing_oldest_ = false;
    if (!finished && !error && cancelled_) error = health_.cause();  // cancel() skipped this one
    if (!finished && !error) return false;
    ended = std::move(started_.front());
    started_.pop_front();
    --started_count_;
  }
  health_.operation_log().end(ended->slot, error.has_value());
  health_.finish(*ended, error);
  return true;
}

// Finishes the started ones that are done.
void CallerRunsExecutor::test_all() {
  const std::unique_lock progress_lock(token_->lock, std::try_to_lock);
  while (progress_lock && test_oldest(Deadline::at(at_once))) continue;
}

// Called by the shared thread.
void CallerRunsExecutor::poll() noexcept {
  if (started_count_ == 0) return;
  polled_ = true;
  test_all();
  polled_ = false;
}

// REQUIRES the progress lock. Waits for the started ones.
void CallerRunsExecutor::finish_all() {
  while (test_oldest(Deadline::never())) continue;
}

// REQUIRES the progress lock. Works on the oldest pending collective: finishes it, or returns when the deadline passes;
// returns false when there is none that it could work on.
inline bool CallerRunsExecutor::progress(const Deadline& deadline) {
  if (started_count_ > 0) {
    test_oldest(deadline);
    return true;
  }
  if (deadline.when()) {  // a queued one, once begun, is executed to its end whatever the deadline
    queue_.hand_over();
    return false;
  }
  const auto work = queue_.try_pop();
  if (!work) return false;
  finish_queued(**work);
  return true;
}

// REQUIRES the progress lock.
void CallerRunsExecutor::finish_queued(PendingWork& work) {
  const auto error = execute_queued(work);
  --queued_count_;
  health_.finish(work, error);
}

// Nothing is executed in a broken group: for the transport, the started ones before it are unfinished.
std::optional<Error> CallerRunsExecutor::execute_queued(PendingWork& work) {
  if (auto cause = health_.cause()) return cause;
  const auto slot = runner_.log_begin(work.collective);
  return runner_.run(work.collective, slot, runner_.passes_unchanged(work.collective));
}

// Also tests the started ones for which no thread waits, as their timeouts run, unless the shared thread does.
void CallerRunsExecutor::run_queue() {
  while (queue_.await_item(shares_poller_ ? std::chrono::hours(1) : started_poll)) {
    std::unique_lock progress_lock(token_->lock);
    const auto work = queue_.try_pop();
    if (!work) {
      progress_lock.unlock();
      if (!shares_poller_) test_all();
      continue;
    }
    finish_all();
    const auto error = execute_queued(**work);
    --queued_count_;
    progress_lock.unlock();
    health_.finish(**work, error);
  }
}

void CallerRunsExecutor::cancel(const Error& cause) {
  std::deque<PendingPtr> cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    // The thread in test_oldest() fails the oldest itself: the memory is in use until test() returns.
    while (started_.size() > (testing_oldest_ ? 1 : 0)) {
      cancelled.push_front(std::move(started_.back()));
      started_.pop_back();
      --started_count_;
    }
    for (auto& work : queue_.take_all()) {
      --queued_count_;
      cancelled.push_back(std::move(work));
    }
  }
  for (const auto& work : cancelled) {
    health_.operation_log().end(work->slot, true);
    health_.finish(*work, cause);
  }
}

}  // namespace ddprun::comm

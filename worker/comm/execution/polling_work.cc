#include "ddprun/worker/comm/execution/polling_work.h"

namespace ddprun::comm {
namespace {

// How long a waiter sleeps while another thread holds the progress lock before it tries to take the lock itself.
constexpr std::chrono::microseconds retry_interval{500};

}  // namespace

void PollingWork::wait(Deadline deadline) {
  if (queued_) progress_->wait_predictor().note(SyncWaitPredictor::Clock::now() - *queued_);
  while (!Completion::done() && !deadline.expired()) {
    if (!try_progress(deadline)) wait_done(earlier(deadline, Deadline::in(retry_interval)));
  }
  Completion::wait(deadline);
}

bool PollingWork::try_progress(const Deadline& deadline) const {
  const std::unique_lock lock(progress_->lock(), std::try_to_lock);
  if (!lock) return false;
  if (Completion::done()) return true;
  auto* const engine = progress_->engine();
  return engine && engine->progress(deadline);
}

bool PollingWork::done() const {
  if (!Completion::done()) try_progress(Deadline::at(Deadline::Clock::time_point::min()));
  return Completion::done();
}

}  // namespace ddprun::comm

#include "ddprun/worker/comm/execution/polling_work.h"

namespace ddprun::comm {
namespace {

// How long a waiter leaves the work to who has the turn before it tries to get the turn itself.
constexpr std::chrono::microseconds patience{500};

}  // namespace

void PollingWork::wait(Deadline deadline) {
  if (queued_) turn_->prompt_waits().note(SyncWaitPredictor::Clock::now() - *queued_);
  while (!Completion::done() && !deadline.expired()) {
    if (!help(deadline)) wait_done(earlier(deadline, Deadline::in(patience)));
  }
  Completion::wait(deadline);
}

bool PollingWork::help(const Deadline& deadline) const {
  const std::unique_lock turn(turn_->lock(), std::try_to_lock);
  if (!turn) return false;
  if (Completion::done()) return true;
  auto* const carrier = turn_->carrier();
  return carrier && carrier->progress(deadline);
}

bool PollingWork::done() const {
  if (!Completion::done()) help(Deadline::at(Deadline::Clock::time_point::min()));
  return Completion::done();
}

}  // namespace ddprun::comm

#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "ddprun/worker/comm/execution/progress_lock.h"
#include "ddprun/worker/comm/execution/sync_wait_predictor.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {

// Whoever carries out the collectives of a group holds its turn: a thread of the group, or one that waits for a work.
class ProgressToken {
 public:
  class ProgressEngine {
   public:
    virtual ~ProgressEngine() = default;
    // Goes on with the oldest work: finishes it, or returns when the deadline has passed; false when there is none that
    // it could go on with. The caller holds the turn. Must not throw.
    virtual bool progress(const Deadline& deadline) = 0;
  };

  explicit ProgressToken(ProgressEngine& carrier) : carrier_(&carrier) {}

  ProgressLock& lock() { return lock_; }
  // None once the group has ended. REQUIRES: the turn is held.
  ProgressEngine* carrier() { return carrier_; }
  void end() {
    const std::lock_guard turn(lock_);
    carrier_ = nullptr;
  }
  // For queued works.
  SyncWaitPredictor& prompt_waits() { return prompt_waits_; }

 private:
  SyncWaitPredictor prompt_waits_;
  ProgressLock lock_;
  ProgressEngine* carrier_;
};

// A work whose waiters carry it out themselves, and those before it, while nobody else does: that saves the way to
// another thread and back.
class PollingWork : public Completion {
 public:
  PollingWork(const Operation& operation, std::shared_ptr<ProgressToken> turn)
      : Completion(operation), turn_(std::move(turn)) {}

  // Before others know of it.
  void note_queued() { queued_ = SyncWaitPredictor::Clock::now(); }

  void wait(Deadline deadline) override;
  bool done() const override;

 private:
  // False when there was nothing to do for this thread.
  bool help(const Deadline& deadline) const;

  const std::shared_ptr<ProgressToken> turn_;
  std::optional<SyncWaitPredictor::Clock::time_point> queued_;
};

}  // namespace ddprun::comm

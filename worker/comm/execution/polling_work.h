#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "ddprun/worker/comm/execution/progress_lock.h"
#include "ddprun/worker/comm/execution/sync_wait_predictor.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {

// What makes the pending collectives of a group progress.
class ProgressEngine {
 public:
  virtual ~ProgressEngine() = default;
  // Works on the oldest pending collective: finishes it, or returns when the deadline passes; false when there is none
  // that it could work on. The caller holds the progress lock. Must not throw.
  virtual bool progress(const Deadline& deadline) = 0;
};

// Shared by a group's executor and its works, which may outlive it: the lock that one thread at a time holds to execute
// the group's collectives, and the engine behind it.
class ProgressToken {
 public:
  explicit ProgressToken(ProgressEngine& engine) : engine_(&engine) {}

  ProgressLock& lock() { return lock_; }
  // Null once detached. REQUIRES the lock.
  ProgressEngine* engine() { return engine_; }
  void detach() {
    const std::lock_guard held(lock_);
    engine_ = nullptr;
  }
  // Of queued works.
  SyncWaitPredictor& wait_predictor() { return wait_predictor_; }

 private:
  SyncWaitPredictor wait_predictor_;
  ProgressLock lock_;
  ProgressEngine* engine_;
};

// A work that is executed, with those before it, by the thread that waits for it, unless another thread is doing so:
// this saves two thread switches.
class PollingWork final : public Completion {
 public:
  PollingWork(const Operation& operation, std::shared_ptr<ProgressToken> progress)
      : Completion(operation), progress_(std::move(progress)) {}

  // Called before other threads see this work.
  void note_queued() { queued_ = SyncWaitPredictor::Clock::now(); }

  void wait(Deadline deadline) override;
  bool done() const override;

 private:
  // False when there was nothing for this thread to do.
  bool try_progress(const Deadline& deadline) const;

  const std::shared_ptr<ProgressToken> progress_;
  std::optional<SyncWaitPredictor::Clock::time_point> queued_;
};

}  // namespace ddprun::comm

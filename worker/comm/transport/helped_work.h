#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "ddprun/worker/comm/call/completion.h"
#include "ddprun/worker/comm/transport/prompt_waits.h"
#include "ddprun/worker/comm/transport/turn_lock.h"

namespace ddprun::comm {

// Whoever carries out the collectives of a group holds its turn: a thread of the group, or one that waits for a work.
class Turn {
 public:
  class Carrier {
   public:
    virtual ~Carrier() = default;
    // Goes on with the oldest work: finishes it, or returns when the deadline has passed; false when there is none that
    // it could go on with. The caller holds the turn. Must not throw.
    virtual bool go_on(const Deadline& deadline) = 0;
  };

  explicit Turn(Carrier& carrier) : carrier_(&carrier) {}

  TurnLock& lock() { return lock_; }
  // None once the group has ended. REQUIRES: the turn is held.
  Carrier* carrier() { return carrier_; }
  void end() {
    const std::lock_guard turn(lock_);
    carrier_ = nullptr;
  }
  // For queued works.
  PromptWaits& prompt_waits() { return prompt_waits_; }

 private:
  PromptWaits prompt_waits_;
  TurnLock lock_;
  Carrier* carrier_;
};

// A work whose waiters carry it out themselves, and those before it, while nobody else does: that saves the way to
// another thread and back.
class HelpedWork : public Completion {
 public:
  HelpedWork(const Operation& operation, std::shared_ptr<Turn> turn) : Completion(operation), turn_(std::move(turn)) {}

  // Before others know of it.
  void note_queued() { queued_ = PromptWaits::Clock::now(); }

  void wait(Deadline deadline) override;
  bool done() const override;

 private:
  // False when there was nothing to do for this thread.
  bool help(const Deadline& deadline) const;

  const std::shared_ptr<Turn> turn_;
  std::optional<PromptWaits::Clock::time_point> queued_;
};

}  // namespace ddprun::comm

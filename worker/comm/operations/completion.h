#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "common/error.h"
#include "worker/comm/operations/operation.h"
#include "worker/comm/work.h"

namespace ddprun::comm {

// The Work of an executor: its first complete() or fail() counts, later ones are ignored. operation: shown in messages.
class Completion : public Work {
 public:
  explicit Completion(const Operation& operation) : operation_(operation) {}

  // Inline for works that are done by then, as those of most small collectives are.
  void wait(Deadline deadline) override {
    if (!finished() && !wait_done(deadline)) throw_unfinished();
    if (error_) throw Error(*error_);
  }
  bool done() const override { return finished(); }
  std::optional<Error> error() const override;

  int source() const override;

  void complete(int source = -1);
  void fail(const Error& error);
  const Operation& operation() const { return operation_; }
  // True from the first wait() on that finds it unfinished.
  const std::atomic<bool>& awaited() const { return awaited_; }

 protected:
  bool finished() const { return done_; }
  // Waits until it is done; returns false when the deadline passes first.
  bool wait_done(const Deadline& deadline);

 private:
  [[noreturn]] void throw_unfinished() const;
  void finish(std::optional<Error> error, int source = -1);

  const Operation operation_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_ = false;  // set last: a thread that sees it sees the error too
  std::atomic<bool> awaited_ = false;
  std::optional<Error> error_;
  int source_ = -1;
};

// Works that are done from the start. completed_work() returns the same one each time, without a reference count, which
// would cost a small blocking call two atomic operations. It is never destroyed, as holders may outlive any static
// object.
Completion* make_completed();
inline WorkPtr completed_work() {
  static Completion* const completed = make_completed();
  return {std::shared_ptr<void>(), completed};
}
WorkPtr failed_work(const Error& error);

// Does what cv.wait_until does, for a Deadline. Returns false when it passes and the condition does not hold.
template <class Condition>
bool wait_until(std::condition_variable& cv, std::unique_lock<std::mutex>& lock, const Deadline& deadline,
                Condition condition) {
  if (!deadline.when()) {
    cv.wait(lock, condition);
    return true;
  }
  return cv.wait_until(lock, *deadline.when(), condition);
}

}  // namespace ddprun::comm

#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/operations/operation.h"
#include "ddprun/worker/comm/work.h"

namespace ddprun::comm {

// The Work that back ends hand out: completed exactly once, by whoever carries the operation out; later calls change
// nothing. operation: for messages.
class Completion : public Work {
 public:
  explicit Completion(const Operation& operation) : operation_(operation) {}

  void wait(Deadline deadline) override;
  bool done() const override;
  std::optional<Error> error() const override;

  int source() const override;

  void complete(int source = -1);
  void fail(const Error& error);
  const Operation& operation() const { return operation_; }

 protected:
  // Whether it is done when the deadline has passed, or before.
  bool wait_done(const Deadline& deadline);

 private:
  void finish(std::optional<Error> error, int source = -1);

  const Operation operation_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_ = false;  // the last that changes: whoever sees it sees the error
  std::optional<Error> error_;
  int source_ = -1;
};

// Works that were over before they began. The first is the same each time.
WorkPtr completed_work();
WorkPtr failed_work(const Error& error);

// cv.wait_until for a Deadline. False when it passed and condition still does not hold.
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

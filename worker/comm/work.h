#pragma once

#include <memory>
#include <optional>

#include "ddprun/common/deadline.h"
#include "ddprun/common/error.h"

namespace ddprun {

// One operation in flight. Thread-safe. May outlive its group: the group's end completes it with an error.
class Work {
 public:
  virtual ~Work() = default;

  // Returns once the operation has completed and its buffers are the caller's again; throws its Error, the same at
  // every call. A deadline that passes first is Errc::timeout: the operation itself goes on, and its buffers remain in
  // use.
  virtual void wait(Deadline deadline = Deadline::never()) = 0;
  // True once wait() would not block, also after a failure.
  virtual bool done() const = 0;
  // Why it failed; none while it goes on and after it succeeded.
  virtual std::optional<Error> error() const = 0;
  // Of a recv that is done: the rank that sent; otherwise -1.
  virtual int source() const { return -1; }
};
using WorkPtr = std::shared_ptr<Work>;

}  // namespace ddprun

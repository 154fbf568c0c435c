#pragma once

#include <memory>
#include <optional>

#include "common/deadline.h"
#include "common/error.h"

namespace ddprun {

// Handle of an operation that was started.
//
// Ownership: shared; may outlive its group, whose destruction ends it with an error.
// Threads: thread-safe.
// Errors: wait() throws the operation's error, the same at every call.
class Work {
 public:
  virtual ~Work() = default;

  // Returns once the operation has finished and its buffers are the caller's again. Throws Errc::timeout when the
  // deadline passes first: the operation continues, and its buffers remain in use.
  virtual void wait(Deadline deadline = Deadline::never()) = 0;
  // Work queued from now on on a stream of the memory's device (cudaStream_t) begins once the operation has finished.
  // Waits like wait() unless a stream of the device executes the operation (NCCL). After a failure the stream continues
  // all the same, on data that is no result; the error is that of wait(), which follows in any case.
  //
  // cancelled: null, or a float32 in the memory of the stream's device, which outlives the operation. That work finds 1
  // there if the group's operations have been cancelled, and else what it was. It may also be 1 behind an operation
  // that had finished just before.
  virtual void order(void* stream, float* cancelled = nullptr) {
    static_cast<void>(stream);
    static_cast<void>(cancelled);
    wait();
  }
  // True once wait() would not block, also after a failure.
  virtual bool done() const = 0;
  // Returns its error; none while it is in progress and after success.
  virtual std::optional<Error> error() const = 0;
  // The sending rank of a recv that has finished; otherwise -1.
  virtual int source() const { return -1; }
};
using WorkPtr = std::shared_ptr<Work>;

}  // namespace ddprun

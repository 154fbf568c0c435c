#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun {

// Events of CUDA (cudaEvent_t, made for timing, of the memory's device) that an operation records on the stream on
// which it runs: when it begins, and when its result is there. Null: not recorded.
struct OpEvents {
  void* begun = nullptr;
  void* ended = nullptr;
};

// Is told of the operations of a group on memory of a device, and gives them their events: for a profiler.
// Threads: that of ProcessGroup::time_operations(). Errors: no method throws.
class OperationTimer {
 public:
  virtual ~OperationTimer() = default;

  struct Started {
    OpEvents events;
    std::size_t number = 0;  // by which the other methods name it
  };
  // An operation is about to start. kind: "allreduce", lives for ever.
  virtual Started started(std::string_view kind) noexcept = 0;
  // The host begins to wait for it.
  virtual void wait_begins() noexcept = 0;
  // It has succeeded, and its events are recorded.
  virtual void finished(std::size_t number) noexcept = 0;
};

}  // namespace ddprun

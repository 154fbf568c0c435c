#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun {

// Events of CUDA (cudaEvent_t, made for timing, of the memory's device) that an operation records on the stream on
// which it runs: when it begins, and when its result is there. A null event is not recorded.
struct OpEvents {
  void* begun = nullptr;
  void* ended = nullptr;
};

// The interface through which a profiler learns of a group's operations on memory of a device, and gives them their
// events. Threads: that of ProcessGroup::time_operations(). Errors: no method throws.
class OperationTimer {
 public:
  virtual ~OperationTimer() = default;

  struct Started {
    OpEvents events;
    std::size_t number = 0;  // identifies it in the other methods
  };
  // An operation is about to start. kind: such as "allreduce", a text that lives for ever.
  virtual Started started(std::string_view kind) noexcept = 0;
  // The host begins to wait for it.
  virtual void wait_begins() noexcept = 0;
  // It has succeeded, and its events are recorded.
  virtual void finished(std::size_t number) noexcept = 0;
};

}  // namespace ddprun

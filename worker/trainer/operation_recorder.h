#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ddprun/worker/profiler/event.h"

namespace ddprun::trainer {

// Records the operations of the thread that makes it, from then until its destruction, with the times that the clock
// shows. One thread.
class OperationRecorder {
 public:
  using Clock = std::function<profiler::Time()>;
  explicit OperationRecorder(Clock clock);
  ~OperationRecorder();
  OperationRecorder(const OperationRecorder&) = delete;
  OperationRecorder& operator=(const OperationRecorder&) = delete;

  // Outside of operations.
  std::vector<profiler::Event> take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer

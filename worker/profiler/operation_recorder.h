#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/profiler/event.h"

namespace ddprun::profiler {

// Learns of the operations of a thread, which nest. No method throws.
class OperationListener {
 public:
  virtual ~OperationListener() = default;
  // The name must live for ever.
  virtual void begin(Kind kind, const char* name, const std::string& module) = 0;
  // Adds to the operation that began last and has not ended.
  virtual void add_flops(double flops) = 0;
  virtual void end() = 0;
};

// Records the operations of the thread that makes it, from then until its destruction, with the times that the clock
// shows, or tells a listener of them, which outlives it. One thread.
class OperationRecorder {
 public:
  using Clock = std::function<Time()>;
  explicit OperationRecorder(Clock clock);
  explicit OperationRecorder(OperationListener& listener);
  ~OperationRecorder();
  OperationRecorder(const OperationRecorder&) = delete;
  OperationRecorder& operator=(const OperationRecorder&) = delete;

  // Returns the events; not to be called within an operation. None where a listener learns of them.
  std::vector<Event> take();

 private:
  class ClockListener;
  class Observer;
  std::unique_ptr<ClockListener> own_;
  std::unique_ptr<Observer> observer_;
};

}  // namespace ddprun::profiler

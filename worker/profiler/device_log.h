#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/profiler/event.h"
#include "worker/profiler/step_times.h"

namespace ddprun::profiler {

// A point in a queue of a device, with which the device notes the time: its number among those of the step, and the
// time when the host queued it.
struct Point {
  std::size_t number = 0;
  Time host{0};
};

// One action of the training thread in a step.
struct LogEntry {
  enum class What { step_begins, operation_begins, operation_ends, phase_ends, wait_begins, wait_ends };
  What what = What::step_begins;
  Point at;  // its point in the compute queue
  Kind kind = Kind::phase;
  std::string name;  // that of an operation
  std::string module;
  double flops = 0;
  Phase phase = nullptr;
};

// A collective on memory of the device, by numbers of points: the one when the compute queue got to it, and those of
// its begin and end in the communication queue.
struct LoggedTransfer {
  std::string name;  // such as "allreduce"
  std::size_t ready = 0;
  std::size_t begun = 0;
  std::size_t ended = 0;
};

// The work that one thread queues on a device in a step, in its order; the device's times are known later
// (device_step.h). No I/O; one thread.
class DeviceLog {
 public:
  // This is called first.
  void step_begins(Point at) { add(LogEntry::What::step_begins, at); }
  // Operations nest, as those of Recorder do.
  void begin(Kind kind, std::string name, std::string module, Point at);
  // Adds to the operation that began last and has not ended. REQUIRES: there is one.
  void add_flops(double flops) { entries_[open_.back()].flops += flops; }
  // REQUIRES: one has begun.
  void end(Point at);
  void phase_ended(Phase phase, Point at) { add(LogEntry::What::phase_ends, at).phase = phase; }
  // Notes that the host waits for a collective. Nothing else is queued meanwhile.
  void wait_begins(Point at) { add(LogEntry::What::wait_begins, at); }
  void wait_ended(Point at) { add(LogEntry::What::wait_ends, at); }
  void transferred(LoggedTransfer transfer) { transfers_.push_back(std::move(transfer)); }

  const std::vector<LogEntry>& entries() const { return entries_; }
  const std::vector<LoggedTransfer>& transfers() const { return transfers_; }

 private:
  LogEntry& add(LogEntry::What what, Point at) { return entries_.emplace_back(LogEntry{.what = what, .at = at}); }

  std::vector<LogEntry> entries_;
  std::vector<std::size_t> open_;  // indices of entries_: operations that have not ended
  std::vector<LoggedTransfer> transfers_;
};

}  // namespace ddprun::profiler

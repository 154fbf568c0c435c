#pragma once

#include <vector>

#include "worker/profiler/event.h"

namespace ddprun::profiler {

// Makes events of what begins and ends on one thread. The caller reads the clock. No I/O; one thread.
class Recorder {
 public:
  // Begins an event within the one that began last and has not ended.
  void begin(Kind kind, std::string name, std::string module, Time at);
  // Adds to the event that began last. REQUIRES: one has begun.
  void add_flops(double flops) { open_.back().flops += flops; }
  // REQUIRES: one has begun.
  void end(Time at);
  // Adds an event of which both times are known; it is not part of the nesting.
  void add(Event event) { events_.push_back(std::move(event)); }

  std::vector<Event> take();  // the events that have ended, in the order of the ends

 private:
  std::vector<Event> open_;  // self: so far, the time of the events within
  std::vector<Event> events_;
};

}  // namespace ddprun::profiler

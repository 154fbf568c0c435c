#pragma once

#include <vector>

#include "worker/profiler/device_log.h"
#include "worker/profiler/event.h"
#include "worker/profiler/overlap.h"
#include "worker/profiler/step_times.h"

namespace ddprun::profiler {

// An idle device reaches what the host queues within this time.
inline constexpr Time reaction_of_device = std::chrono::microseconds(20);

// A step on a device, and on the host that queued it.
struct DeviceStep {
  std::vector<Event> queues;  // those of the device: phases, operations, collectives, copies
  std::vector<Event> host;    // phases and operations, as the training thread queued them
  // The times of the compute queue, from the first point to the last. In `wait` the host waits for a collective, and
  // all that was queued before is done.
  StepTimes times;
  Time communication{0};  // the time in which a collective was under way
  Time hidden{0};         // the part of it that was not in times.wait
  Time copies{0};         // the copies of samples to the device
  Time queueing{0};       // the host's time for queueing operations, copies and the update
  // The part of forward, backward and optimizer that ended as soon as the host had queued it: the device waits for it.
  Time paced{0};
  ReducedStep reduced;
};

// times: those of the log's points, by their numbers, since the same moment as those of the host. A pure function.
DeviceStep read_step(const DeviceLog& log, const std::vector<Time>& times);

}  // namespace ddprun::profiler

#pragma once

#include <vector>

#include "ddprun/worker/profiler/device_log.h"
#include "ddprun/worker/profiler/event.h"
#include "ddprun/worker/profiler/overlap.h"
#include "ddprun/worker/profiler/step_times.h"

namespace ddprun::profiler {

// An idle device reaches what the host queues within this time.
inline constexpr Time reaction_of_device = std::chrono::microseconds(20);

// A step on a device, and on the host that queued it.
struct DeviceStep {
  std::vector<Event> queues;  // of the device: phases, operations, collectives, copies
  std::vector<Event> host;    // phases and operations, as the training thread queued them
  // Of the compute queue, from the first point to the last; wait: the host waits for a collective, and all that was
  // queued before is done.
  StepTimes times;
  Time communication{0};  // in which a collective was under way
  Time hidden{0};         // of it, what was not in times.wait
  Time copies{0};         // of samples to the device
  Time queueing{0};       // of the host: operations, copies and the update
  // Of forward, backward and optimizer, what ended as soon as the host had queued it: the device waits for the host.
  Time paced{0};
  ReducedStep reduced;
};

// times: of the points of the log, by their numbers, since the same moment as those of the host. A pure function.
DeviceStep read_step(const DeviceLog& log, const std::vector<Time>& times);

}  // namespace ddprun::profiler

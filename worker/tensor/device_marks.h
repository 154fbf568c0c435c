#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "worker/tensor/device.h"

namespace ddprun {

// A profiler's points in the queues of a CUDA device at which the device notes the time, step by step. The host does
// not wait for them; it reads those of a step once the device has passed them. Events are used again, so there are as
// many as two or three steps have points.
//
// Units: nanoseconds since the construction, with the resolution of the device's clock (about 0.5 us).
// Ownership: events that reserve() gives exist until this object does not.
// Threads: one. Errors: what CUDA reports, with the codes of DeviceApi; what failed in a kernel may come out here.
class DeviceMarks {
 public:
  using Time = std::chrono::nanoseconds;

  // Waits for the device. REQUIRES: a CUDA device.
  explicit DeviceMarks(Device device);
  ~DeviceMarks();
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  // The host's time at which the device's times begin, to within the time that the device takes to get to an event.
  std::chrono::steady_clock::time_point origin() const { return origin_; }

  // Makes a point in the compute queue after all that is queued there. Returns its number in the step, from 0.
  std::size_t record();
  // A point that another object records, in any queue of the device.
  struct Reserved {
    std::size_t number;
    void* event;  // cudaEvent_t
  };
  Reserved reserve();
  // Says that a reserved point of this step is recorded by now. One not confirmed has the time of the step's first.
  void confirm(std::size_t number);

  // REQUIRES: record() made the step's first point and its last but for reserved ones.
  void end_step();
  // Returns when the points of the oldest step were passed, by their numbers, if that has ended and the device has
  // passed all of them. Each step is taken once.
  std::optional<std::vector<Time>> take_step();
  // Does the same, but waits for the device. Returns none if all are taken.
  std::optional<std::vector<Time>> await_step();

  std::size_t events() const;  // the number that exist

 private:
  struct Step {
    std::vector<void*> events;             // null for those that are reserved and not confirmed
    std::map<std::size_t, void*> awaited;  // reserved and not confirmed, by number
    std::vector<void*> others;             // reserved and confirmed
    void* last = nullptr;                  // the last that record() made
  };
  class Events;

  bool is_passed(const Step& step) const;
  std::vector<Time> read(Step step);

  const std::unique_ptr<Events> events_;
  std::chrono::steady_clock::time_point origin_;
  void* anchor_;         // an event that was passed
  Time anchor_time_{0};  // the time when it was passed
  Step step_;            // the step under way
  std::deque<Step> ended_;
};

}  // namespace ddprun

#pragma once

#include <chrono>
#include <string>

namespace ddprun::profiler {

using Time = std::chrono::nanoseconds;  // since the beginning of the recording

enum class Kind { phase, forward, backward, communication };

// The rows of a trace: the training thread, the queues of a CUDA device, and buckets of gradients, from the first one
// on.
inline constexpr int host_track = 0, compute_track = 1, communication_track = 2, copies_track = 3,
                     first_bucket_track = 4;

// Something that took its time, on one thread, in one queue of a device or on one link.
struct Event {
  Kind kind = Kind::phase;
  std::string name;    // the operation's, such as "linear", or the phase's, such as "backward"
  std::string module;  // such as "blocks.3.attention"; empty if there is none
  Time start{0};
  Time duration{0};
  Time self{0};      // the duration without the events within it
  Time host{0};      // in a queue of a device: the host's time for queueing it, without the events within it
  double flops = 0;  // floating-point operations of products and convolutions
  int track = host_track;
};

}  // namespace ddprun::profiler

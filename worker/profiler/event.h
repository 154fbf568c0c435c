#pragma once

#include <chrono>
#include <string>

namespace ddprun::profiler {

using Time = std::chrono::nanoseconds;  // since the recording began

enum class Kind { phase, forward, backward, communication };

// Something that took its time, on one thread or on one link.
struct Event {
  Kind kind = Kind::phase;
  std::string name;    // of the operation: "linear"; of the phase: "backward"
  std::string module;  // "blocks.3.attention"; empty: none
  Time start{0};
  Time duration{0};
  Time self{0};      // the duration without the events within it
  double flops = 0;  // floating-point operations of products and convolutions
  int track = 0;     // 0: the training thread; others: a bucket of gradients each
};

}  // namespace ddprun::profiler

#pragma once

#include <algorithm>
#include <cstddef>

namespace ddprun::trainer {

// The most bytes that forward and backward of a step took at a time.
struct ActivationPeaks {
  std::size_t device = 0;
  std::size_t host = 0;

  // Takes the larger values of both.
  void include(const ActivationPeaks& other) {
    device = std::max(device, other.device);
    host = std::max(host, other.host);
  }
};

}  // namespace ddprun::trainer

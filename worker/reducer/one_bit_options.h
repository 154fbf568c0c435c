#pragma once

#include <cstdint>

namespace ddprun {

// The options of the Adam whose momentum is compressed; freeze_step has DeepSpeed's name.
struct OneBitOptions {
  double beta1 = 0.9, beta2 = 0.999;
  std::int64_t freeze_step = 1000;  // passes before it, counted from 1, are averaged as they are
};

}  // namespace ddprun

#pragma once

#include <cstdint>

namespace ddprun {

// Those of the Adam whose momentum is compressed; freeze_step with DeepSpeed's name.
struct OneBitOptions {
  double beta1 = 0.9, beta2 = 0.999;
  std::int64_t freeze_step = 1000;  // passes before it are averaged as they are; from 1
};

}  // namespace ddprun

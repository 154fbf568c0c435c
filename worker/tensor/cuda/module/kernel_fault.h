#pragma once

#include "common/error.h"

namespace ddprun::cuda {

// A kernel that was queued before has failed; the catcher that knows what was queued can tell which. A value.
class KernelFault : public Error {
 public:
  using Error::Error;
};

}  // namespace ddprun::cuda

#pragma once

#include <optional>

#include "common/error.h"
#include "worker/tensor/device.h"

namespace ddprun {

// An error that a call of a CUDA device has reported. A value.
class DeviceError : public Error {
 public:
  using Error::Error;
};

// Returns what has failed on a CUDA device, as its next call reports it; none where it works, and for the host. Does
// not wait. Serves code that learns of a failure from elsewhere, such as a process group that uses the device.
std::optional<DeviceError> device_fault(Device device);

}  // namespace ddprun

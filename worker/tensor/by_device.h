#pragma once

#include <utility>
#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun {

// Returns each of the tensors' devices with its tensors, in the order of their first ones.
std::vector<std::pair<Device, std::vector<Tensor>>> by_device(const std::vector<Tensor>& tensors);

}  // namespace ddprun

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/nn/module.h"
#include "worker/tensor/device.h"

namespace ddprun {

// Model parallelism: the modules directly below a model run one after the other on several devices. Activations and
// their gradients go from device to device; the results come back to the first one, where inputs and targets are. The
// bits are those of one device.

// Cuts a sequence of costs into so many parts that the largest sum of a part is as small as possible. Returns the index
// at which each part but the first begins; among equal divisions the one with the longest parts first. A pure function.
// REQUIRES: 1 <= parts <= costs.size()
std::vector<std::size_t> cut_evenly(const std::vector<double>& costs, std::size_t parts);

// Places the modules directly below the model: those before the first name on the first device, and so on; names[i] is
// the first module of devices[i + 1]. Throws Errc::usage for a name that is not there or out of order, and for a
// parameter that modules on two devices share. To be called before the model is used, by one thread.
void split_model(nn::Module& model, const std::vector<std::string>& names, const std::vector<Device>& devices);

}  // namespace ddprun

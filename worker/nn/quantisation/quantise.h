#pragma once

#include <functional>

#include "ddprun/worker/nn/module.h"

// Replaces each Linear of a model that is a Sequential, or in one directly below, by a QuantisedLinear; other layers
// stay as they are. Each returns how many it has replaced.
namespace ddprun::nn {

int quantise_dynamic(Module& model);

// calibrate: runs the model on the samples from which the range of each layer's inputs is taken.
int quantise_static(Module& model, const std::function<void()>& calibrate);

}  // namespace ddprun::nn

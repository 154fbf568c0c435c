#pragma once

#include <functional>

#include "worker/nn/module.h"

// Puts a quantized layer in the place of each Linear, Conv1D and Conv2d of a model, at any depth; other layers stay as
// they are. The first two free the float32 weights and return how many layers they have quantized: those that are not
// quantized yet.
namespace ddprun::nn {

int quantize_dynamic(Module& model);

// A layer whose range make_quantization_aware() has learnt keeps it. calibrate: runs the model on the samples from
// which the ranges of the other layers' inputs are taken; called only if there are such layers.
int quantize_static(Module& model, const std::function<void()>& calibrate);

// Quantization-aware training: from now on these layers compute with rounded inputs and weights, in float32, and learn
// the ranges of their inputs, which are buffers: FakeQuantizedLayer. Returns the number of these layers.
int make_quantization_aware(Module& model);

}  // namespace ddprun::nn

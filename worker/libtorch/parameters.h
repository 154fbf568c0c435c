#pragma once

#include <string>
#include <torch/torch.h>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/parameter_ref.h"

namespace ddprun::torch {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Returns the parameters that are averaged.
NamedTensors trainable_parameters(const ::torch::nn::Module& module);
NamedTensors all_parameters(const ::torch::nn::Module& module);
NamedTensors all_buffers(const ::torch::nn::Module& module);

// Returns the tensors' memory. Throws Errc::unsupported, naming the tensor, if it is not dense on the CPU or its type
// is none of ddprun's; truth values count as bytes.
std::vector<ParameterRef> references(const NamedTensors& tensors);

// Divides parameters among ranks: the largest first, each to the rank that has the fewest elements so far. Returns the
// rank of each, the same everywhere.
std::vector<int> balanced_owners(const std::vector<at::Tensor>& parameters, int ranks);
// Sets every parameter to its owner's. Collective.
void share_parts(ProcessGroup& group, const std::vector<at::Tensor>& parameters, const std::vector<int>& owners);

}  // namespace ddprun::torch

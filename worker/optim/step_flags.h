#pragma once

#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun::optim {

// Numbers in the memory of a CUDA device, by which its kernels leave out a step. A value: the tensors are handles.
struct StepFlags {
  Tensor skip;           // one float32: not 0 if this step is to change nothing
  Tensor left_out = {};  // one float64: the steps before that changed nothing; undefined: there are none
  Tensor made = {};      // one float64: the steps that changed something, this one included; undefined: the host counts
};

// Returns the flags on a device; null if it has none.
inline const StepFlags* flags_on(Device device, const std::vector<StepFlags>& all) {
  for (const StepFlags& flags : all)
    if (flags.skip.device() == device) return &flags;
  return nullptr;
}
// Returns the number in a device's memory; null for an undefined tensor.
template <class T>
const T* number_in(const Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.raw()) : nullptr;
}

}  // namespace ddprun::optim

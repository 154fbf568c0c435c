#pragma once

#include <cstddef>
#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun {

// Numbers of a device that the host needs later. Each is copied into pinned memory behind what computes it, so that one
// wait makes all of them known. Those of a CPU device are known at once.
//
// Ownership: a tensor may be released as soon as it was added. Threads: one thread at a time uses it.
// Errors: those of the device.
class LateValues {
 public:
  explicit LateValues(Device device) : device_(device) {}

  // Adds a tensor with one element, floating-point, on a device of the same type: the loss of a pipeline is on its last
  // one. Returns the value's number; 0 is the first after clear().
  std::size_t add(const Tensor& value);
  // Copies a tensor of a CUDA device behind what computes it into `to`, pinned memory of the same size, which outlives
  // the next wait(). The copy does not count among the values.
  void copy(const Tensor& from, Tensor& to) const;
  bool are_known() const { return known_ == types_.size(); }
  // Waits for the device, unless all values are known.
  void wait();
  // REQUIRES: the value is known.
  double at(std::size_t number) const;
  // Removes all values; their memory is used again. REQUIRES: all are known.
  void clear();

 private:
  static constexpr std::size_t values_of_block = 512;

  void* slot(std::size_t number) const;
  void copy_bytes(const Tensor& from, void* to) const;

  Device device_;
  std::vector<double> of_host_;  // the values of a CPU device
  std::vector<Tensor> blocks_;   // pinned memory for those of a CUDA device, of 8 bytes each
  std::vector<DType> types_;     // the values' types
  std::size_t known_ = 0;
};

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/tensor/tensor.h"

namespace ddprun::data {

// A few tensors by name, each with one row a sample, and the indices of these samples. What is random about a sample
// (dropout, augmentation) may depend on its index and the epoch, so that it does not depend on how samples are divided
// into batches.
//
// Ownership: a value; its copies share the memory of the tensors. Threads: one at a time.
class Batch {
 public:
  // REQUIRES: the batch has no tensor of this name yet.
  void add(std::string name, Tensor tensor);
  // Throws Errc::usage naming the tensors that are there, if there is none of this name.
  const Tensor& at(std::string_view name) const;
  // Returns null if there is none.
  const Tensor* find(std::string_view name) const;
  const Tensor& input() const { return at("input"); }
  const Tensor& target() const { return at("target"); }

  // Returns this batch on a device, without waiting for it (upload()). For a CUDA device the host's tensors are kept.
  Batch to(Device device) const { return to(device, device); }
  // The overload with the inputs on one device and what a loss compares results with on another.
  Batch to(Device inputs, Device targets) const;
  // Returns the tensor that a batch on a CUDA device was made from; at() for one on the host.
  const Tensor& on_host(std::string_view name) const;

  std::int64_t size() const { return std::ssize(samples); }

  std::vector<std::int64_t> samples;  // indices into the data set, one a row
  std::int64_t epoch = 0;             // counted from 0

 private:
  using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
  static const Tensor* find_in(const NamedTensors& tensors, std::string_view name);

  NamedTensors tensors_;
  NamedTensors host_tensors_;  // those of a batch on a CUDA device
};

// Returns these samples as one batch, in their order: "input" and "target", each [samples, ...shape of one].
Batch make_batch(const Dataset& dataset, std::vector<std::int64_t> samples, std::int64_t epoch = 0);

}  // namespace ddprun::data

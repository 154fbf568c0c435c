#pragma once

#include <optional>

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::nn {

// A Linear whose weight is int8, symmetric, with a scale for each output: (..., in) -> (..., out) in float32. Inputs
// are rounded to 7 bits, over the range of each batch (dynamic), or over a range that was found before (static), beyond
// which they are clamped. Buffers: weight (out, in) int8, weight_scale (out), bias (out), and input_range (2) if
// static.
//
// Threads: one at a time.
// Errors: Errc::mismatch for an input that does not fit, Errc::usage for one that needs a gradient: there is none.
class QuantisedLinear : public Module {
 public:
  // linear: has "weight" (out, in) and, or not, "bias" (out). input: none: dynamic.
  QuantisedLinear(const Module& linear, std::optional<kernels::ValueRange> input);

 private:
  Variable forward(const Variable& input) override;
  kernels::ValueRange range_for(const Tensor& input) const;
  const Tensor& weight_sum();

  Variable weight_, scale_, bias_, input_range_;
  Tensor weight_sum_;
  std::uint64_t summed_version_ = 0;  // of the weight, which a file may replace
};

}  // namespace ddprun::nn

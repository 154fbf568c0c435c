#pragma once

#include <cstdint>
#include <optional>

#include "worker/nn/layers/weighted_layer.h"
#include "worker/tensor/kernels.h"

namespace ddprun::nn {

// The common part of quantized layers: a weight in int8, symmetric, with a scale for each output. Inputs are rounded
// to 7 bits, over the range of each batch (dynamic), or over a range that was found before (static), beyond which they
// are clamped. Buffers: weight (out, ...) int8, weight_scale (out), bias (out), and input_range (2) if static.
//
// Threads: one at a time.
// Errors: Errc::mismatch for an input that does not fit, Errc::usage for one that needs a gradient: there is none.
class QuantizedLayer : public Module {
 protected:
  // input: none for a dynamic range.
  QuantizedLayer(const WeightedLayer& layer, std::optional<kernels::ValueRange> input);

  // Returns the product of the weight with the levels of this input, which is float32 and row-major.
  virtual Tensor product(const Tensor& input, const kernels::Levels& levels) = 0;
  const Tensor& weight() const { return weight_.value(); }
  const Tensor& scale() const { return scale_.value(); }
  Tensor bias() const { return bias_.defined() ? bias_.value() : Tensor(); }
  // The sums of the weight's levels, int32, by output.
  const Tensor& weight_sum();

 private:
  Variable forward(const Variable& input) final;
  kernels::ValueRange range_for(const Tensor& input) const;

  Variable weight_, scale_, bias_, input_range_;
  Tensor weight_sum_;
  std::uint64_t summed_version_ = 0;  // that of the weight, which a file may replace
};

}  // namespace ddprun::nn

#include "worker/nn/quantization/quantized_linear.h"

#include "common/error.h"

namespace ddprun::nn {

Tensor QuantizedLinear::product(const Tensor& input, const kernels::Levels& levels) {
  Shape shape = input.shape();
  const std::int64_t in = weight().size(1), out = weight().size(0);
  if (shape.empty() || shape.back() != in)
    throw make_error(Errc::mismatch, "quantized linear: an input of shape {} does not fit a weight of shape {}",
                     to_string(shape), to_string(weight().shape()));
  const Tensor x = input.reshape({input.numel() / in, in});
  Tensor y = Tensor::empty({x.size(0), out}, DType::float32, x.device());
  kernels::of(x).quantized_linear(x, levels, weight(), weight_sum(), scale(), bias(), y);
  shape.back() = out;
  return y.reshape(shape);
}

}  // namespace ddprun::nn

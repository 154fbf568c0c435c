#include "worker/autograd/ops/quantization.h"

#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/mapped.h"

namespace ddprun {
namespace {

// Returns (channels, everything else) of a weight.
Tensor by_channel(const Tensor& weight, std::size_t dimension) {
  const Tensor moved = weight.transpose(0, static_cast<std::int64_t>(dimension)).contiguous();
  return moved.reshape({moved.size(0), -1});
}

void share_maxima(Tensor& values, const ShareMaxima& share) {
  const Tensor wide = values.to(DType::float64).to(Device{});
  const auto* first = wide.data<double>();
  std::vector<double> numbers(first, first + wide.numel());
  share(numbers);
  values.copy_from(Tensor::from(numbers, values.shape()).to(values.dtype()));
}

}  // namespace

Variable fake_quantize(const Variable& input, const QuantizeOptions& options) {
  return autograd::unary("fake_quantize", kernels::Unary::fake_quantize, input,
                         {.a = options.scale,
                          .b = static_cast<double>(options.zero),
                          .c = static_cast<double>(options.lowest),
                          .d = static_cast<double>(options.highest)});
}

Tensor weight_scales(const Tensor& weight, std::size_t dimension, const ShareMaxima& share) {
  const Tensor rows = kernels::unary(kernels::Unary::abs, by_channel(weight, dimension));
  Tensor most = Tensor::empty({rows.size(0)}, rows.dtype(), rows.device());
  Tensor index = Tensor::empty({rows.size(0)}, DType::int64, rows.device());
  kernels::of(rows).max(rows, {.outer = rows.size(0), .n = rows.size(1), .inner = 1}, most, index);
  if (share) share_maxima(most, share);
  const auto number = [&](double value, DType dtype) {
    return Tensor::full({}, value, dtype, rows.device()).expand(most.shape());
  };
  Tensor quotients = Tensor::empty(most.shape(), DType::float64, rows.device());
  kernels::of(rows).binary(kernels::Binary::divide, {}, most.to(DType::float64),
                           number(static_cast<double>(largest_weight_level), DType::float64), quotients);
  Tensor is_above_zero = Tensor::empty(most.shape(), DType::uint8, rows.device());
  kernels::of(rows).compare(kernels::Comparison::greater, most, number(0, most.dtype()), is_above_zero);
  Tensor scales = Tensor::empty(most.shape(), DType::float32, rows.device());
  kernels::of(rows).where(is_above_zero, quotients.to(DType::float32), number(1, DType::float32), scales);
  return scales.to(weight.dtype());
}

Variable fake_quantize_channels(const Variable& weight, std::size_t dimension, const ShareMaxima& share) {
  if (size_of(weight.dtype()) == 2)  // the quotient of two 16-bit numbers is not as fine as a level
    return cast(fake_quantize_channels(cast(weight, DType::float32), dimension, share), weight.dtype());
  const Tensor scales = weight_scales(weight.value(), dimension, share);
  Shape shape = weight.shape();
  for (auto& size : shape) size = 1;
  shape[dimension] = scales.numel();
  const Variable scale(scales.reshape(shape));
  const Variable levels =
      fake_quantize(div(weight, scale), {.lowest = -largest_weight_level, .highest = largest_weight_level});
  return mul(levels, scale);
}

}  // namespace ddprun

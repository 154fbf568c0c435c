#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;
using kernels::NormGradients;
using kernels::NormStatistics;

// Statistics and parameters are float32 where the values have 16 bits.
DType wide(DType dtype) {
  return size_of(dtype) == 2 ? DType::float32 : dtype;
}
Tensor widened(const Tensor& tensor) {
  return tensor.defined() ? tensor.to(wide(tensor.dtype())) : tensor;
}

Tensor inverse_deviation(const Tensor& given, double eps) {
  const Tensor variance = widened(given);
  const CudaDevice& on = device_of(variance);
  Tensor out = Tensor::empty_like(variance);
  check(on.api().inverse_deviation(on.context(), view_of(variance), eps, view_of(out)));
  return out;
}

NormStatistics batch_statistics(const Tensor& x, std::int64_t outer, std::int64_t inner, double eps, Tensor& variance) {
  const CudaDevice& on = device_of(x);
  const std::int64_t channels = x.shape()[1];
  variance = Tensor::empty({channels}, wide(x.dtype()), x.device());
  NormStatistics result{Tensor::empty_like(variance), Tensor::empty_like(variance)};
  check(on.api().batch_statistics(on.context(), view_of(x), outer, inner, eps, view_of(result.mean),
                                  view_of(result.inverse), view_of(variance)));
  return result;
}

Tensor batch_norm(const Tensor& x, std::int64_t outer, std::int64_t inner, const NormStatistics& statistics,
                  const Tensor& weight, const Tensor& bias) {
  const CudaDevice& on = device_of(x);
  Tensor out = Tensor::empty_like(x);
  check(on.api().batch_norm(on.context(), view_of(x), outer, inner, view_of(widened(statistics.mean)),
                            view_of(widened(statistics.inverse)), view_of(widened(weight)), view_of(widened(bias)),
                            view_of(out)));
  return out;
}

NormGradients batch_norm_backward(const Tensor& x, const Tensor& grad, std::int64_t outer, std::int64_t inner,
                                  const NormStatistics& statistics, const Tensor& given_weight, bool training) {
  const CudaDevice& on = device_of(x);
  const Tensor weight = widened(given_weight);
  NormGradients out{Tensor::empty_like(x), Tensor::empty_like(weight), Tensor::empty_like(weight)};
  check(on.api().batch_norm_backward(on.context(), view_of(x), view_of(grad), outer, inner,
                                     view_of(widened(statistics.mean)), view_of(widened(statistics.inverse)),
                                     view_of(weight), training, view_of(out.x), view_of(out.weight),
                                     view_of(out.bias)));
  out.weight = out.weight.to(given_weight.dtype());
  out.bias = out.bias.to(given_weight.dtype());
  return out;
}

Tensor group_norm(const Tensor& x, const Axis& groups, bool centred, double eps, const Tensor& weight,
                  const Tensor& bias, DType result, NormStatistics& statistics) {
  const CudaDevice& on = device_of(x);
  Tensor out = Tensor::empty(x.shape(), result, x.device());
  const DType dtype = wide(x.dtype());
  statistics = {centred ? Tensor::empty({groups.outer}, dtype, x.device()) : Tensor(),
                Tensor::empty({groups.outer}, dtype, x.device())};
  check(on.api().group_norm(on.context(), view_of(x), groups, centred, eps, view_of(weight), view_of(bias),
                            view_of(statistics.mean), view_of(statistics.inverse), view_of(out)));
  return out;
}

NormGradients group_norm_backward(const Tensor& x, const Tensor& grad, const Axis& groups, bool centred,
                                  const NormStatistics& statistics, const Tensor& weight, bool has_bias) {
  const CudaDevice& on = device_of(x);
  NormGradients out{Tensor::empty_like(x), {}, {}};
  if (weight.defined()) out.weight = Tensor::empty_like(weight);
  if (has_bias) out.bias = Tensor::empty_like(weight);
  check(on.api().group_norm_backward(on.context(), view_of(x), view_of(grad), groups, centred, view_of(statistics.mean),
                                     view_of(statistics.inverse), view_of(weight), view_of(out.x), view_of(out.weight),
                                     view_of(out.bias)));
  return out;
}

void row_norm_backward(const Tensor& x, const Tensor& grad, const Tensor& addend, const Axis& rows, bool centred,
                       const NormStatistics& statistics, const Tensor& weight, kernels::RowNormGradients& out) {
  const CudaDevice& on = device_of(x);
  out.x = Tensor::empty_like(x);
  check(on.api().row_norm_backward(on.context(), view_of(x), view_of(grad), view_of(addend), rows, centred,
                                   view_of(statistics.mean), view_of(statistics.inverse), view_of(weight),
                                   view_of(out.x), view_of(out.x_copy), view_of(out.weight), out.accumulate_weight,
                                   view_of(out.bias), out.accumulate_bias));
}

}  // namespace

void add_normalization(const DeviceApi& api, kernels::Table& table) {
  offer(table.batch_statistics, batch_statistics, api.batch_statistics);
  offer(table.inverse_deviation, inverse_deviation, api.inverse_deviation);
  offer(table.batch_norm, batch_norm, api.batch_norm);
  offer(table.batch_norm_backward, batch_norm_backward, api.batch_norm_backward);
  offer(table.group_norm, group_norm, api.group_norm);
  offer(table.group_norm_backward, group_norm_backward, api.group_norm_backward);
  offer(table.row_norm_backward, row_norm_backward, api.row_norm_backward);
}

}  // namespace ddprun::cuda

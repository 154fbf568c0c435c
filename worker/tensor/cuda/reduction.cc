#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;
using kernels::ValueRange;

void sum(const Tensor& x, const Axis& axis, Tensor& out) {
  const CudaDevice& on = device_of(x);
  check(on.api().sum(on.context(), view_of(x), axis, view_of(out)));
}

void max(const Tensor& x, const Axis& axis, Tensor& out, Tensor& index) {
  const CudaDevice& on = device_of(x);
  check(on.api().max(on.context(), view_of(x), axis, view_of(out), view_of(index)));
}

void softmax(const Tensor& x, const Axis& rows, bool log, Tensor& y) {
  const CudaDevice& on = device_of(x);
  check(on.api().softmax(on.context(), view_of(x), rows, log, view_of(y)));
}

void softmax_gradient(const Tensor& y, const Tensor& grad, const Axis& rows, bool log, Tensor& out) {
  const CudaDevice& on = device_of(y);
  check(on.api().softmax_gradient(on.context(), view_of(y), view_of(grad), rows, log, view_of(out)));
}

void add_bias(Tensor& x, const Tensor& bias, std::int64_t outer, std::int64_t inner) {
  const CudaDevice& on = device_of(x);
  check(on.api().add_bias(on.context(), view_of(x), view_of(bias), outer, inner));
}

void sum_to_bias(const Tensor& grad, std::int64_t outer, std::int64_t inner, Tensor& out, bool accumulate) {
  const CudaDevice& on = device_of(grad);
  check(on.api().sum_to_bias(on.context(), view_of(grad), outer, inner, view_of(out), accumulate));
}

ValueRange value_range(const Tensor& x) {
  if (x.numel() == 0) return {};
  const CudaDevice& on = device_of(x);
  const Tensor range = Tensor::empty({2}, DType::float32, x.device());
  check(on.api().value_range(on.context(), view_of(x), view_of(range)));
  const Tensor found = range.to(Device{});
  return {.min = found.data<float>()[0], .max = found.data<float>()[1]};
}

}  // namespace

void add_reductions(const DeviceApi& api, kernels::Table& table) {
  offer(table.sum, sum, api.sum);
  offer(table.max, max, api.max);
  offer(table.softmax, softmax, api.softmax);
  offer(table.softmax_gradient, softmax_gradient, api.softmax_gradient);
  offer(table.add_bias, add_bias, api.add_bias);
  offer(table.sum_to_bias, sum_to_bias, api.sum_to_bias);
  offer(table.value_range, value_range, api.value_range);
}

}  // namespace ddprun::cuda

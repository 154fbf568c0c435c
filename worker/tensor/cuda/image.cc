#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::ConvGeometry;
using kernels::PoolGeometry;

Tensor conv2d(const ConvGeometry& g, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const CudaDevice& on = device_of(x);
  Tensor out = Tensor::empty({g.batch, g.out_channels, g.out_h, g.out_w}, x.dtype(), x.device());
  check(on.api().conv2d(on.context(), g, view_of(x), view_of(weight), view_of(bias), view_of(out)));
  return out;
}

Tensor conv2d_backward_input(const ConvGeometry& g, const Tensor& grad, const Tensor& weight) {
  const CudaDevice& on = device_of(grad);
  Tensor out = Tensor::empty({g.batch, g.in_channels, g.height, g.width}, grad.dtype(), grad.device());
  check(on.api().conv2d_backward_input(on.context(), g, view_of(grad), view_of(weight), view_of(out)));
  return out;
}

void conv2d_backward_weight(const ConvGeometry& g, const Tensor& x, const Tensor& grad, Tensor& weight_grad,
                            bool accumulate) {
  const CudaDevice& on = device_of(x);
  check(on.api().conv2d_backward_weight(on.context(), g, view_of(x), view_of(grad), view_of(weight_grad), accumulate));
}

Tensor max_pool2d(const PoolGeometry& g, const Tensor& x, const Shape& out_shape, Tensor& index) {
  const CudaDevice& on = device_of(x);
  Tensor out = Tensor::empty(out_shape, x.dtype(), x.device());
  index = Tensor::empty(out_shape, DType::int32, x.device());
  check(on.api().max_pool2d(on.context(), g, view_of(x), view_of(out), view_of(index)));
  return out;
}

Tensor max_pool2d_backward(const PoolGeometry& g, const Tensor& grad, const Tensor& index, const Shape& in_shape) {
  const CudaDevice& on = device_of(grad);
  Tensor out = Tensor::empty(in_shape, grad.dtype(), grad.device());
  check(on.api().max_pool2d_backward(on.context(), g, view_of(grad), view_of(index), view_of(out)));
  return out;
}

// The four functions of the two average poolings have one form.
template <auto Function>
Tensor pooled(const PoolGeometry& g, const Tensor& from, const Shape& shape) {
  const CudaDevice& on = device_of(from);
  Tensor out = Tensor::empty(shape, from.dtype(), from.device());
  check((on.api().*Function)(on.context(), g, view_of(from), view_of(out)));
  return out;
}

}  // namespace

void add_convolutions(const DeviceApi& api, kernels::Table& table) {
  offer(table.conv2d, conv2d, api.conv2d);
  offer(table.conv2d_backward_input, conv2d_backward_input, api.conv2d_backward_input);
  offer(table.conv2d_backward_weight, conv2d_backward_weight, api.conv2d_backward_weight);
}

void add_pooling(const DeviceApi& api, kernels::Table& table) {
  offer(table.max_pool2d, max_pool2d, api.max_pool2d);
  offer(table.max_pool2d_backward, max_pool2d_backward, api.max_pool2d_backward);
  offer(table.avg_pool2d, pooled<&DeviceApi::avg_pool2d>, api.avg_pool2d);
  offer(table.avg_pool2d_backward, pooled<&DeviceApi::avg_pool2d_backward>, api.avg_pool2d_backward);
  offer(table.adaptive_avg_pool2d, pooled<&DeviceApi::adaptive_avg_pool2d>, api.adaptive_avg_pool2d);
  offer(table.adaptive_avg_pool2d_backward, pooled<&DeviceApi::adaptive_avg_pool2d_backward>,
        api.adaptive_avg_pool2d_backward);
}

}  // namespace ddprun::cuda

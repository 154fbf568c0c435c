#include "ddprun/worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

void sgd_step(Tensor& value, const Tensor& grad, Tensor& momentum, const kernels::SgdStep& step) {
  const CudaDevice& on = device_of(value);
  check(on.api().sgd_step(on.context(), view_of(value), view_of(grad), view_of(momentum), step));
}

void adam_step(Tensor& value, const Tensor& grad, Tensor& average, Tensor& square_average,
               const kernels::AdamStep& step) {
  const CudaDevice& on = device_of(value);
  check(
      on.api().adam_step(on.context(), view_of(value), view_of(grad), view_of(average), view_of(square_average), step));
}

}  // namespace

void add_optimizers(const DeviceApi& api, kernels::Table& table) {
  offer(table.sgd_step, sgd_step, api.sgd_step);
  offer(table.adam_step, adam_step, api.adam_step);
}

}  // namespace ddprun::cuda

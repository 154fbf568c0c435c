#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::Axis;

void gather(const Tensor& x, const Axis& axis, const Tensor& index, Tensor& out) {
  const CudaDevice& on = device_of(x);
  check(on.api().gather(on.context(), view_of(x), axis, view_of(index), view_of(out)));
}

void scatter_add(const Tensor& x, const Axis& of_out, const Tensor& index, Tensor& out) {
  const CudaDevice& on = device_of(x);
  check(on.api().scatter_add(on.context(), view_of(x), of_out, view_of(index), view_of(out)));
}

void scatter(const Tensor& x, const Axis& of_out, const Tensor& index, Tensor& out) {
  const CudaDevice& on = device_of(x);
  check(on.api().scatter(on.context(), view_of(x), of_out, view_of(index), view_of(out)));
}

void gather_rows(const Tensor& rows, const Tensor& index, Tensor& out) {
  const CudaDevice& on = device_of(rows);
  check(on.api().gather_rows(on.context(), view_of(rows), view_of(index), view_of(out)));
}

void scatter_add_rows(const Tensor& x, const Tensor& index, Tensor& out) {
  const CudaDevice& on = device_of(x);
  check(on.api().scatter_add_rows(on.context(), view_of(x), view_of(index), view_of(out)));
}

}  // namespace

void add_indexing(const DeviceApi& api, kernels::Table& table) {
  offer(table.gather, gather, api.gather);
  offer(table.scatter_add, scatter_add, api.scatter_add);
  offer(table.scatter, scatter, api.scatter);
  offer(table.gather_rows, gather_rows, api.gather_rows);
  offer(table.scatter_add_rows, scatter_add_rows, api.scatter_add_rows);
}

}  // namespace ddprun::cuda

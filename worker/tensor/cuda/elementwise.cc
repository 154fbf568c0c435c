#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using functor::Arguments;
using functor::Binary;
using functor::Comparison;
using functor::Unary;

void unary(Unary function, const Arguments& arguments, const Tensor& x, Tensor& y) {
  const CudaDevice& on = device_of(x);
  check(on.api().unary(on.context(), function, arguments, view_of(x), view_of(y)));
}

void unary_gradient(Unary function, const Arguments& arguments, const Tensor& saved, const Tensor& grad, Tensor& out) {
  const CudaDevice& on = device_of(grad);
  check(on.api().unary_gradient(on.context(), function, arguments, view_of(saved), view_of(grad), view_of(out)));
}

void binary(Binary function, const Arguments& arguments, const Tensor& a, const Tensor& b, Tensor& out) {
  const CudaDevice& on = device_of(a);
  check(on.api().binary(on.context(), function, arguments, view_of(a), view_of(b), view_of(out)));
}

void binary_gradient(Binary function, const Arguments& arguments, int operand, const Tensor& a, const Tensor& b,
                     const Tensor& grad, Tensor& out) {
  const CudaDevice& on = device_of(a);
  check(on.api().binary_gradient(on.context(), function, arguments, operand, view_of(a), view_of(b), view_of(grad),
                                 view_of(out)));
}

void compare(Comparison function, const Tensor& a, const Tensor& b, Tensor& out) {
  const CudaDevice& on = device_of(a);
  check(on.api().compare(on.context(), function, view_of(a), view_of(b), view_of(out)));
}

void where(const Tensor& cond, const Tensor& a, const Tensor& b, Tensor& out) {
  const CudaDevice& on = device_of(a);
  check(on.api().where(on.context(), view_of(cond), view_of(a), view_of(b), view_of(out)));
}

void dropout(const Tensor& x, double probability, std::uint64_t seed, const std::vector<std::uint64_t>& streams,
             std::uint64_t first, Tensor& out) {
  const CudaDevice& on = device_of(x);
  check(on.api().dropout(on.context(), view_of(x), probability, seed, streams.data(),
                         static_cast<std::int64_t>(streams.size()), first, view_of(out)));
}

}  // namespace

void add_elementwise(const DeviceApi& api, kernels::Table& table) {
  offer(table.unary, unary, api.unary);
  offer(table.unary_gradient, unary_gradient, api.unary_gradient);
  offer(table.binary, binary, api.binary);
  offer(table.binary_gradient, binary_gradient, api.binary_gradient);
  offer(table.compare, compare, api.compare);
  offer(table.where, where, api.where);
  offer(table.dropout, dropout, api.dropout);
}

}  // namespace ddprun::cuda

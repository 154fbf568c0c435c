#include "common/error.h"
#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::MatmulOptions;

void addmm(const Tensor& bias, const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  const CudaDevice& on = device_of(out);
  check(on.api().matmul(on.context(), view_of(bias), view_of(a), view_of(b), view_of(out), options));
}

void matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  addmm(Tensor(), a, b, out, options);
}

void batched_matmul(const Tensor& a, const Tensor& b, Tensor& out, MatmulOptions options) {
  const CudaDevice& on = device_of(out);
  check(on.api().batched_matmul(on.context(), view_of(a), view_of(b), view_of(out), options));
}

void fused_matmul(const Tensor& a, const Tensor& b, Tensor& out, const kernels::MatmulFusion& fusion,
                  MatmulOptions options) {
  const CudaDevice& on = device_of(out);
  const ProductFusion extras{.bias = view_of(fusion.bias),
                             .addend = view_of(fusion.addend),
                             .gelu_input = view_of(fusion.gelu_input),
                             .gelu_gradient = view_of(fusion.gelu_gradient),
                             .sums = view_of(fusion.sums),
                             .sums_of_a = fusion.sums_of_a,
                             .accumulate_sums = fusion.accumulate_sums};
  check(on.api().fused_matmul(on.context(), view_of(a), view_of(b), view_of(out), extras, options));
}

[[noreturn]] void refuse_quantized(const char* operation, Device device) {
  throw make_error(Errc::unsupported,
                   "{} is not supported on {}: models with weights of 8 bits run on the CPU, which has products of "
                   "unsigned by signed bytes",
                   operation, to_string(device));
}

void quantized_linear(const Tensor& x, const kernels::Levels&, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&, Tensor&) {
  refuse_quantized("quantized_linear", x.device());
}

Tensor quantized_conv2d(const kernels::ConvGeometry&, const Tensor& x, const kernels::Levels&, const Tensor&,
                        const Tensor&, const Tensor&, const Tensor&) {
  refuse_quantized("quantized_conv2d", x.device());
}

}  // namespace

void add_matrix_products(const DeviceApi& api, kernels::Table& table) {
  offer(table.matmul, matmul, api.matmul);
  offer(table.addmm, addmm, api.matmul);
  offer(table.batched_matmul, batched_matmul, api.batched_matmul);
  offer(table.fused_matmul, fused_matmul, api.fused_matmul);
}

void add_quantized_products(kernels::Table& table) {
  table.quantized_linear = quantized_linear;
  table.quantized_conv2d = quantized_conv2d;
}

}  // namespace ddprun::cuda

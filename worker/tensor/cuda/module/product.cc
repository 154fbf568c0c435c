#include "ddprun/worker/tensor/cuda/module/product.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/cuda/module/groups.h"
#include "ddprun/worker/tensor/cuda/module/guarded.h"
#include "ddprun/worker/tensor/cuda/module/libraries.h"
#include "ddprun/worker/tensor/cuda/module/memory.h"
#include "ddprun/worker/tensor/cuda/module/reduction.h"
#include "ddprun/worker/tensor/cuda/module/views.h"
#include "ddprun/worker/tensor/cuda/module/zero.h"

namespace ddprun::cuda {
namespace {

using kernels::MatmulOptions;

// In bytes, as far as algorithms differ by it.
std::uint32_t alignment_of(const View& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

std::int64_t size(const View& view, int from_last) {
  return view.shape[static_cast<std::size_t>(view.rank - from_last)];
}

// cuBLASLt's own addition takes a vector of the result's type, aligned to 16 bytes, and none of float64.
bool adds_bias_itself(const View& bias, const View& out) {
  return bias.data != nullptr && bias.dtype == out.dtype && out.dtype != DType::float64 && alignment_of(bias) >= 16;
}

void check_types(const LibraryCall& call, const View& a, const View& b, const View& out) {
  const bool narrow = a.dtype == DType::bfloat16 || a.dtype == DType::float16;
  const bool fits =
      is_floating(a.dtype) && b.dtype == a.dtype && (out.dtype == a.dtype || (narrow && out.dtype == DType::float32));
  if (!fits)
    throw make_error(Errc::unsupported, "{} of {} and {} with a result of {} is not supported on {}", call.operation,
                     name_of(a.dtype), name_of(b.dtype), name_of(out.dtype), call.device.name());
  check_architecture(call);
}

template <class Scalar>
void multiply(DeviceContext& device, const ProductLibrary& library, ProductPlan& plan, const View& a, const View& b,
              const View& out, bool accumulate, const LibraryCall& call) {
  const Scalar alpha = 1, beta = accumulate ? 1 : 0;
  const Scratch workspace(device.memory, plan.workspace_bytes);
  check(cublasLtMatmul(library.handle(), &plan.operation, &alpha, b.data, &plan.first, a.data, &plan.second, &beta,
                       out.data, &plan.out, out.data, &plan.out, &plan.algorithm, workspace.data(), workspace.bytes(),
                       device.stream()),
        "cublasLtMatmul", call);
  ++device.launches;
}

// `count` products of matrices that lie one after the other.
void multiply_each(DeviceContext& device, const char* operation, std::int64_t count, const View& bias, const View& a,
                   const View& b, const View& out, const MatmulOptions& options) {
  const LibraryCall call{device, operation, a.dtype};
  check_types(call, a, b, out);
  if (element_count(out) == 0) return;
  const bool fused = adds_bias_itself(bias, out);
  const Product product{.m = size(out, 2),
                        .n = size(out, 1),
                        .k = size(a, options.transpose_a ? 2 : 1),
                        .count = count,
                        .in = a.dtype,
                        .out = out.dtype,
                        .transpose_a = options.transpose_a,
                        .transpose_b = options.transpose_b,
                        .bias = fused,
                        .tf32 = device.allow_tf32,
                        .a_alignment = alignment_of(a),
                        .b_alignment = alignment_of(b),
                        .out_alignment = alignment_of(out)};
  if (product.k == 0) {  // a sum of nothing
    if (!options.accumulate) zero(device, out);
  } else {
    ProductLibrary& library = product_library(device, call);
    ProductPlan& plan = library.plan(product, bias.data, call);
    if (a.dtype == DType::float64)
      multiply<double>(device, library, plan, a, b, out, options.accumulate, call);
    else
      multiply<float>(device, library, plan, a, b, out, options.accumulate, call);
  }
  if (bias.data != nullptr && (!fused || product.k == 0)) add_bias(device, out, bias, product.m, 1);
}

}  // namespace

void matmul(DeviceContext& device, const View& bias, const View& a, const View& b, const View& out,
            const MatmulOptions& options) {
  multiply_each(device, "matmul", 1, bias, a, b, out, options);
}

void batched_matmul(DeviceContext& device, const View& a, const View& b, const View& out,
                    const MatmulOptions& options) {
  multiply_each(device, "batched_matmul", size(out, 3), {}, a, b, out, options);
}

void add_products(DeviceApi& api) {
  api.matmul = guarded<matmul>;
  api.batched_matmul = guarded<batched_matmul>;
}

}  // namespace ddprun::cuda

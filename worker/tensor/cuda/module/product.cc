#include "worker/tensor/cuda/module/product.h"

#include <algorithm>

#include "common/error.h"
#include "worker/tensor/cuda/module/elementwise.h"
#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"
#include "worker/tensor/cuda/module/libraries.h"
#include "worker/tensor/cuda/module/memory.h"
#include "worker/tensor/cuda/module/reduction.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/cuda/module/zero.h"

namespace ddprun::cuda {
namespace {

using kernels::MatmulOptions;

// Returns the alignment in bytes, as far as algorithms differ by it.
std::uint32_t alignment_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}
std::uint32_t alignment_of(const View& view) {
  return alignment_of(view.data);
}

std::int64_t size(const View& view, int from_last) {
  return view.shape[static_cast<std::size_t>(view.rank - from_last)];
}

bool is_given(const View& view) {
  return view.data != nullptr;
}

// Returns whether a vector has the result's type, is aligned to 16 bytes, and not of float64, as an epilogue requires.
bool suits_epilogue(const View& vector, const View& out) {
  return is_given(vector) && vector.dtype == out.dtype && out.dtype != DType::float64 && alignment_of(vector) >= 16;
}

// Before sm_90, epilogues with a GELU take longer than a kernel after the product. The second matrix has rows of whole
// packs of 16 bytes.
bool fuses_gelu(const DeviceContext& device, const View& matrix, const View& out) {
  return device.architecture() >= 90 && out.dtype != DType::float64 && size(out, 1) % 8 == 0 &&
         alignment_of(matrix) >= 16;
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

struct ProductCall {
  std::int64_t count;  // the number of matrices that lie one after the other
  const View &a, &b, &out;
  const void* addend;  // like out, or out itself; null if nothing is added
  MatmulOptions options;
};

Product describe(const DeviceContext& device, const ProductCall& p, Epilogue epilogue) {
  return {.m = size(p.out, 2),
          .n = size(p.out, 1),
          .k = size(p.a, p.options.transpose_a ? 2 : 1),
          .count = p.count,
          .in = p.a.dtype,
          .out = p.out.dtype,
          .transpose_a = p.options.transpose_a,
          .transpose_b = p.options.transpose_b,
          .epilogue = epilogue,
          .tf32 = device.allow_tf32,
          .a_alignment = alignment_of(p.a),
          .b_alignment = alignment_of(p.b),
          .out_alignment = std::min(alignment_of(p.out), alignment_of(p.addend))};
}

template <class Scalar>
void multiply(DeviceContext& device, const ProductLibrary& library, ProductPlan& plan, const ProductCall& p,
              const LibraryCall& call) {
  const Scalar alpha = 1, beta = p.addend != nullptr ? 1 : 0;
  const void* const addend = p.addend != nullptr ? p.addend : p.out.data;
  const Scratch workspace(device.memory, plan.workspace_bytes);
  check(cublasLtMatmul(library.handle(), &plan.operation, &alpha, p.b.data, &plan.first, p.a.data, &plan.second, &beta,
                       addend, &plan.out, p.out.data, &plan.out, &plan.algorithm, workspace.data(), workspace.bytes(),
                       device.stream()),
        "cublasLtMatmul", call);
  ++device.launches;
}

// Returns false where there is nothing to multiply, or cuBLASLt has no algorithm with this epilogue.
bool multiply_with(DeviceContext& device, const ProductCall& p, Epilogue epilogue, const EpilogueMemory& memory,
                   const LibraryCall& call) {
  if (size(p.a, p.options.transpose_a ? 2 : 1) == 0) return false;
  ProductLibrary& library = product_library(device, call);
  ProductPlan& plan = library.plan(describe(device, p, epilogue), memory, call);
  if (!plan.exists) return false;
  if (p.a.dtype == DType::float64)
    multiply<double>(device, library, plan, p, call);
  else
    multiply<float>(device, library, plan, p, call);
  return true;
}

// Writes the result of a sum of nothing.
void write_addend(DeviceContext& device, const ProductCall& p) {
  if (p.addend == p.out.data) return;
  if (p.addend == nullptr) return zero(device, p.out);
  View addend = p.out;
  addend.data = const_cast<void*>(p.addend);
  copy(device, addend, p.out);
}

// Multiplies with the bias, if it is given.
void multiply_each(DeviceContext& device, const ProductCall& p, const View& bias, const LibraryCall& call) {
  if (suits_epilogue(bias, p.out) && multiply_with(device, p, Epilogue::bias, {.vector = bias.data}, call)) return;
  if (!multiply_with(device, p, Epilogue::none, {}, call)) write_addend(device, p);
  if (is_given(bias)) add_bias(device, p.out, bias, size(p.out, 2), 1);
}

// --- products with more in them; what an epilogue did not do is done by kernels

const void* addend_of(const View& out, const View& addend, const MatmulOptions& options) {
  return is_given(addend) ? addend.data : options.accumulate ? out.data : nullptr;
}

void multiply_with_gelu(DeviceContext& device, const ProductCall& p, const ProductFusion& fusion,
                        const LibraryCall& call) {
  const bool has_bias = is_given(fusion.bias);
  const EpilogueMemory memory{.vector = fusion.bias.data, .matrix = fusion.gelu_input.data};
  const bool fits = fuses_gelu(device, fusion.gelu_input, p.out) && (!has_bias || suits_epilogue(fusion.bias, p.out));
  if (fits && multiply_with(device, p, has_bias ? Epilogue::gelu_bias : Epilogue::gelu, memory, call)) return;
  multiply_each(device, {p.count, p.a, p.b, fusion.gelu_input, p.addend, p.options}, fusion.bias, call);
  unary(device, functor::Unary::gelu_tanh, {}, fusion.gelu_input, p.out);
}

void multiply_by_gelu_gradient(DeviceContext& device, const ProductCall& p, const View& at, const LibraryCall& call) {
  if (fuses_gelu(device, at, p.out) && multiply_with(device, p, Epilogue::gelu_gradient, {.matrix = at.data}, call))
    return;
  multiply_each(device, p, {}, call);
  unary_gradient(device, functor::Unary::gelu_tanh, {}, at, p.out, p.out);
}

void multiply_and_sum(DeviceContext& device, const ProductCall& p, const ProductFusion& fusion,
                      const LibraryCall& call) {
  const Epilogue epilogue = fusion.sums_of_a ? Epilogue::sums_of_a : Epilogue::sums_of_b;
  if (!fusion.accumulate_sums && suits_epilogue(fusion.sums, p.out) &&
      multiply_with(device, p, epilogue, {.vector = fusion.sums.data}, call))
    return;
  const View& summed = fusion.sums_of_a ? p.a : p.b;
  sum_to_bias(device, summed, size(summed, 2), 1, fusion.sums, fusion.accumulate_sums);
  multiply_each(device, p, {}, call);
}

}  // namespace

void matmul(DeviceContext& device, const View& bias, const View& a, const View& b, const View& out,
            const MatmulOptions& options) {
  const LibraryCall call{device, "matmul", a.dtype};
  check_types(call, a, b, out);
  if (element_count(out) == 0) return;
  multiply_each(device, {1, a, b, out, addend_of(out, {}, options), options}, bias, call);
}

void batched_matmul(DeviceContext& device, const View& a, const View& b, const View& out,
                    const MatmulOptions& options) {
  const LibraryCall call{device, "batched_matmul", a.dtype};
  check_types(call, a, b, out);
  if (element_count(out) == 0) return;
  multiply_each(device, {size(out, 3), a, b, out, addend_of(out, {}, options), options}, {}, call);
}

void fused_matmul(DeviceContext& device, const View& a, const View& b, const View& out, const ProductFusion& fusion,
                  const MatmulOptions& options) {
  const LibraryCall call{device, "fused_matmul", a.dtype};
  check_types(call, a, b, out);
  if (element_count(out) == 0) return;
  const ProductCall product{1, a, b, out, addend_of(out, fusion.addend, options), options};
  if (is_given(fusion.gelu_input)) return multiply_with_gelu(device, product, fusion, call);
  if (is_given(fusion.gelu_gradient)) return multiply_by_gelu_gradient(device, product, fusion.gelu_gradient, call);
  if (is_given(fusion.sums)) return multiply_and_sum(device, product, fusion, call);
  multiply_each(device, product, fusion.bias, call);
}

void add_products(DeviceApi& api) {
  api.matmul = guarded<matmul>;
  api.batched_matmul = guarded<batched_matmul>;
  api.fused_matmul = guarded<fused_matmul>;
}

}  // namespace ddprun::cuda

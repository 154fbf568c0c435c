#include "tests/unit/cuda/library_operands.h"
#include "tests/unit/cuda/module_calls.h"

using namespace ddprun;
using namespace ddprun::cuda;
using namespace ddprun::cuda::testing;
using kernels::MatmulOptions;

namespace {

Shape transposed(Shape shape, bool transposes) {
  if (transposes) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

// Returns op(a) (m, k) op(b) (k, n), plus the earlier value, plus the bias, in float64.
Tensor expected_product(const Tensor& bias, const Tensor& a, const Tensor& b, const Tensor& before,
                        MatmulOptions options) {
  Tensor out = wide(before).clone();
  const kernels::Table& cpu = kernels::of(out);
  if (a.dim() == 3)
    cpu.batched_matmul(wide(a), wide(b), out, options);
  else
    cpu.matmul(wide(a), wide(b), out, options);
  if (bias.defined()) cpu.add_bias(out, wide(bias), out.size(0), 1);
  return out;
}

}  // namespace

TEST_CASE("products are those of float64, for every type, transposition and bias") {
  DeviceContext& device = context_of(0);
  const DType dtype = GENERATE(from_range(std::begin(floating_types), std::end(floating_types)));
  const bool transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  const bool accumulate = GENERATE(false, true), with_bias = GENERATE(false, true);
  const std::int64_t m = 5, n = 12, k = 9;
  const MatmulOptions options{transpose_a, transpose_b, accumulate};
  const Tensor a = random_tensor(transposed({m, k}, transpose_a), 1, dtype);
  const Tensor b = random_tensor(transposed({k, n}, transpose_b), 2, dtype);
  const Tensor bias = with_bias ? random_tensor({n}, 3, dtype) : Tensor();
  const Tensor before = accumulate ? random_tensor({m, n}, 4, dtype) : Tensor::zeros({m, n}, dtype);
  const DeviceTensor x(device, a), y(device, b);
  const DeviceTensor out = accumulate ? DeviceTensor(device, before) : DeviceTensor(device, {m, n}, dtype);
  if (with_bias) {
    const DeviceTensor added(device, bias);
    matmul(device, added.view(), x.view(), y.view(), out.view(), options);
  } else {
    matmul(device, {}, x.view(), y.view(), out.view(), options);
  }
  CAPTURE(name_of(dtype), transpose_a, transpose_b, accumulate, with_bias);
  CHECK(difference(out, expected_product(bias, a, b, before, options)) < tolerance(dtype));
}

TEST_CASE("a product of 16 bits has a result of float32 that is not rounded in between") {
  DeviceContext& device = context_of(0);
  const DType dtype = GENERATE(DType::bfloat16, DType::float16);
  const Tensor a = random_tensor({7, 300}, 1, dtype), b = random_tensor({300, 6}, 2, dtype);
  const Tensor before = random_tensor({7, 6}, 3, DType::float32);
  const DeviceTensor x(device, a), y(device, b), out(device, before);
  matmul(device, {}, x.view(), y.view(), out.view(), {.accumulate = true});
  CHECK(difference(out, expected_product({}, a, b, before, {.accumulate = true})) < tolerance(DType::float32));
}

TEST_CASE("batched products are strided, each its own") {
  DeviceContext& device = context_of(0);
  const DType dtype = GENERATE(from_range(std::begin(floating_types), std::end(floating_types)));
  const MatmulOptions options{.transpose_a = GENERATE(false, true), .transpose_b = GENERATE(false, true)};
  const Tensor a = random_tensor(transposed({3, 4, 7}, options.transpose_a), 1, dtype);
  const Tensor b = random_tensor(transposed({3, 7, 5}, options.transpose_b), 2, dtype);
  const DeviceTensor x(device, a), y(device, b), out(device, {3, 4, 5}, dtype);
  batched_matmul(device, x.view(), y.view(), out.view(), options);
  CHECK(difference(out, expected_product({}, a, b, Tensor::zeros({3, 4, 5}, dtype), options)) < tolerance(dtype));
}

TEST_CASE("products of parts of tensors, whatever their alignment") {
  DeviceContext& device = context_of(0);
  const int unaligned = GENERATE(0, 1, 2, 3);  // one of a, b, the bias and the result
  // The operand is without the first row, which is 4, 12 or 20 bytes, or has all rows.
  const auto part = [&](const DeviceTensor& tensor, int operand) {
    View view = tensor.view();
    if (operand != unaligned) return view;
    view.data = static_cast<float*>(view.data) + view.strides[0];
    --view.shape[0];
    return view;
  };
  const auto rows = [&](std::int64_t count, int operand) { return operand == unaligned ? count + 1 : count; };
  const auto of_host = [&](const Tensor& tensor, int operand) {
    return operand == unaligned ? tensor.slice(0, 1, tensor.size(0) - 1).clone() : tensor;
  };
  const Tensor a = random_tensor({rows(5, 0), 3}, 1, DType::float32);
  const Tensor b = random_tensor({rows(3, 1), 5}, 2, DType::float32);
  const Tensor bias = random_tensor({rows(5, 2)}, 3, DType::float32);
  const DeviceTensor x(device, a), y(device, b), added(device, bias), out(device, {rows(5, 3), 5}, DType::float32);
  matmul(device, part(added, 2), part(x, 0), part(y, 1), part(out, 3), {});
  const Tensor expected = expected_product(of_host(bias, 2), of_host(a, 0), of_host(b, 1), Tensor::zeros({5, 5}), {});
  CAPTURE(unaligned);
  CHECK(difference(of_host(out.to_host(), 3), expected) < tolerance(DType::float32));
}

TEST_CASE("a product of nothing is zero, or what is there, plus the bias") {
  DeviceContext& device = context_of(0);
  const bool accumulate = GENERATE(false, true);
  const Tensor before = random_tensor({2, 3}, 1, DType::float32), bias = random_tensor({3}, 2, DType::float32);
  const DeviceTensor a(device, {2, 0}, DType::float32), b(device, {0, 3}, DType::float32);
  const DeviceTensor added(device, bias), out(device, before);
  matmul(device, added.view(), a.view(), b.view(), out.view(), {.accumulate = accumulate});
  const Tensor start = accumulate ? before : Tensor::zeros({2, 3});
  CHECK(difference(out, expected_product(bias, Tensor::empty({2, 0}), Tensor::empty({0, 3}), start,
                                         {.accumulate = true})) < tolerance(DType::float32));
  const DeviceTensor none(device, {0, 3}, DType::float32);
  CHECK_NOTHROW(matmul(device, added.view(), a.view(), b.view(), none.view(), {}));
}

TEST_CASE("products of types that do not fit are refused by name") {
  DeviceContext& device = context_of(0);
  const DeviceTensor a(device, {2, 2}, DType::float32), b(device, {2, 2}, DType::bfloat16);
  const Error error = error_of([&] { matmul(device, {}, a.view(), b.view(), a.view(), {}); });
  CHECK(error.code() == Errc::unsupported);
  CHECK(std::string(error.what()) ==
        "matmul of float32 and bfloat16 with a result of float32 is not supported on cuda:0");
}

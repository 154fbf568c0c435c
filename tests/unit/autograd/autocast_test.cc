#include "worker/autograd/autocast.h"

#include "worker/autograd/function.h"
#include "tests/support/numerics.h"
#include "tests/support/saved_tensors.h"

using namespace ddprun;
using namespace ddprun::test;
using autograd::AutocastScope;

namespace {

Variable parameter(Shape shape, std::uint64_t seed) {
  return Variable(random_tensor(std::move(shape), seed), true);
}

// Returns the weight that a matrix product has saved.
const void* weight_used_by(const Variable& product) {
  return testing::saved_tensors(product)[1].raw();
}

}  // namespace

TEST_CASE("autocast holds in its scope, on its thread, and float32 switches it off within") {
  const Variable x = parameter({2, 3}, 1), w = parameter({3, 4}, 2);
  CHECK(autograd::autocast_dtype() == DType::float32);
  {
    const AutocastScope outer(DType::bfloat16);
    CHECK(matmul(x, w).dtype() == DType::bfloat16);
    {
      const AutocastScope inner(DType::float16);
      CHECK(matmul(x, w).dtype() == DType::float16);
      const AutocastScope off(DType::float32);
      CHECK(matmul(x, w).dtype() == DType::float32);
    }
    CHECK(matmul(x, w).dtype() == DType::bfloat16);
  }
  CHECK(matmul(x, w).dtype() == DType::float32);
  CHECK_THROWS_WITH(AutocastScope(DType::float64), Catch::Contains("float64"));
}

TEST_CASE("operands of float64 and integers are left alone under autocast") {
  const AutocastScope scope(DType::bfloat16);
  const Variable wide(random_tensor({2, 3}, 1, DType::float64));
  CHECK(matmul(wide, Variable(random_tensor({3, 2}, 2, DType::float64))).dtype() == DType::float64);
  CHECK(exp(wide).dtype() == DType::float64);
  CHECK(add(wide, Variable(random_tensor({2, 3}, 2))).dtype() == DType::float64);
  const Variable b16 = cast(Variable(random_tensor({3}, 1)), DType::bfloat16),
                 f16 = cast(Variable(random_tensor({3}, 1)), DType::float16);
  CHECK(add(b16, f16).dtype() == DType::float32);
}

TEST_CASE("a weight is cast once in the outermost scope, and again when it has changed") {
  const Variable x = parameter({2, 3}, 1);
  Variable w = parameter({3, 4}, 2);
  const AutocastScope scope(DType::bfloat16);
  const Variable first = matmul(x, w);
  {
    const AutocastScope inner(DType::bfloat16);
    CHECK(weight_used_by(matmul(x, w)) == weight_used_by(first));
  }
  Tensor value = w.value();
  value.fill(2);
  const Variable second = matmul(x, w);
  CHECK(weight_used_by(second) != weight_used_by(first));
  CHECK(same_bits(second.value(), matmul(cast(x, DType::bfloat16), cast(w, DType::bfloat16)).value()));
}

TEST_CASE("a leaf that is blocked by channels may be an operand again and again") {
  const Tensor image = random_tensor({1, 16, 4, 4}, 1);
  const Variable blocked(image.in_layout_of(Tensor::empty_blocked(image.shape(), 8, image.dtype(), image.device())),
                         true);
  const Variable w = parameter({2, 16, 1, 1}, 2);
  const AutocastScope scope(DType::bfloat16);
  const Variable expected = conv2d(Variable(image), w);
  for (int i = 0; i < 2; ++i) CHECK(same_bits(conv2d(blocked, w).value(), expected.value()));
}

TEST_CASE("gradients of weights are accumulated in float32") {
  // 257 is no bfloat16: 256 or 258 would come out of a product in 16 bits.
  Variable w(Tensor::full({1, 1}, 1), true);
  w.set_grad_storage(Tensor::zeros({1, 1}));
  const AutocastScope scope(DType::bfloat16);
  for (int i = 0; i < 2; ++i) sum(matmul(Variable(Tensor::full({257, 1}, 1)), w)).backward();
  CHECK(w.grad().dtype() == DType::float32);
  CHECK(w.grad().item() == 514);
}

TEST_CASE("without memory of its own a weight gets the gradient of its cast in float32") {
  Variable w(Tensor::full({2, 2}, 1), true), bias(Tensor::full({2}, 1), true);
  const AutocastScope scope(DType::float16);
  sum(linear(Variable(Tensor::full({3, 2}, 0.5)), w, bias)).backward();
  CHECK(w.grad().dtype() == DType::float32);
  CHECK(values(w.grad()) == std::vector<double>(4, 1.5));
  CHECK(values(bias.grad()) == std::vector<double>(2, 3));
}

TEST_CASE("a cast of integers is an error, a cast to the same type nothing") {
  const Variable x = parameter({2}, 1);
  CHECK(cast(x, DType::float32).is(x));
  CHECK_THROWS_WITH(cast(Variable(Tensor::zeros({2}, DType::int64)), DType::float32), Catch::Contains("int64"));
}

// Unary functions of every 16-bit number beside those of float32: some are looked up in tables, some are computed.
#include <array>
#include <cmath>
#include <cstdint>

#include "worker/tensor/kernels.h"
#include "tests/support/catch.h"

using namespace ddprun;
using functor::Unary;

namespace {

struct Named {
  const char* name;
  Unary function;
};
#define DDPRUN_ROW(name, functor_) Named{#name, Unary::name},
constexpr std::array functions{DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW

constexpr functor::Arguments arguments{.a = 1.5, .b = 2, .c = -3, .d = 3};

// Returns every number, NaNs and infinities too.
template <class T>
Tensor all_numbers() {
  Tensor all = Tensor::empty({65536}, DTypeOf<T>::value);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) all.data<T>()[bits].bits = static_cast<std::uint16_t>(bits);
  return all;
}

Tensor value_of(Unary function, const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  kernels::of(x).unary(function, arguments, x, y);
  return y;
}
Tensor gradient_of(Unary function, const Tensor& saved, const Tensor& grad) {
  Tensor out = Tensor::empty(grad.shape(), grad.dtype());
  kernels::of(grad).unary_gradient(function, arguments, saved, grad, out);
  return out;
}

// Returns the first element that differs; -1: none does. steps is how many representable numbers they may be apart.
template <class T>
int first_difference(const Tensor& a, const Tensor& b, int steps) {
  for (int i = 0; i < 65536; ++i) {
    const T left = a.data<T>()[i], right = b.data<T>()[i];
    if (std::isnan(static_cast<float>(left)) && std::isnan(static_cast<float>(right))) continue;
    if (std::abs(int{left.bits} - int{right.bits}) > steps) return i;
  }
  return -1;
}

}  // namespace

TEMPLATE_TEST_CASE("a function of 16-bit numbers is that of float32, rounded", "", BFloat16, Float16) {
  constexpr DType dtype = DTypeOf<TestType>::value;
  const Tensor x = all_numbers<TestType>(), wide = x.to(DType::float32);
  Tensor grad = Tensor::empty(x.shape(), dtype);
  for (int i = 0; i < 65536; ++i) grad.data<TestType>()[i] = TestType(0.25F + 0.001F * static_cast<float>(i % 1000));
  const Tensor wide_grad = grad.to(DType::float32);
  for (const auto& [name, function] : functions) {
    CAPTURE(name);
    CHECK(first_difference<TestType>(value_of(function, x), value_of(function, wide).to(dtype), 0) == -1);
    // A product in another order may round the other way.
    CHECK(first_difference<TestType>(gradient_of(function, x, grad), gradient_of(function, wide, wide_grad).to(dtype),
                                     1) == -1);
  }
}

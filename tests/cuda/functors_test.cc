// The functors as a device runs them, thread by thread, give the same bits as the CPU's loops; and functions of their
// own are as exact as they claim.
#include "tests/cuda/functors.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "worker/tensor/kernels.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const kernels::Arguments arguments{.a = 0.7, .b = 1.3, .c = -3, .d = 2};
constexpr std::int64_t count = 1000;

const Tensor a = random_tensor({count}, 1), b = random_tensor({count}, 2), grad = random_tensor({count}, 3);

// Returns whether the bits are equal, where any NaN equals any other.
bool same(const Tensor& x, const Tensor& y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float p = x.data<float>()[i], q = y.data<float>()[i];
    if (std::memcmp(&p, &q, sizeof p) != 0 && !(std::isnan(p) && std::isnan(q))) return false;
  }
  return true;
}

// Returns how many representable numbers lie between the two.
double units_apart(float value, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (value == nearest) return 0;
  const float step = std::nextafter(std::abs(nearest), std::numeric_limits<float>::infinity()) - std::abs(nearest);
  return std::abs(static_cast<double>(value) - exact) / static_cast<double>(step);
}

template <class Own, class Exact>
double worst_error(float low, float high, Own own, Exact exact) {
  double worst = 0;
  constexpr int steps = 200000;
  for (int i = 0; i <= steps; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / steps;
    worst = std::max(worst, units_apart(own(x), exact(static_cast<double>(x))));
  }
  return worst;
}

}  // namespace

TEST_CASE("every unary functor gives the same bits on a device as in the CPU's loops"){
#define DDPRUN_ROW(name, functor_)                                                                  \
  {                                                                                                 \
    INFO(#name);                                                                                    \
    Tensor here = Tensor::empty_like(a), there = Tensor::empty_like(a);                             \
    kernels::table({}).unary(kernels::Unary::name, arguments, a, here);                             \
    run_unary(kernels::Unary::name, arguments, count, a.data<float>(), there.data<float>());        \
    CHECK(same(here, there));                                                                       \
    kernels::table({}).unary_gradient(kernels::Unary::name, arguments, a, grad, here);              \
    run_unary_gradient(kernels::Unary::name, arguments, count, a.data<float>(), grad.data<float>(), \
                       there.data<float>());                                                        \
    CHECK(same(here, there));                                                                       \
  }
    DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)
#undef DDPRUN_ROW
}

TEST_CASE("every binary functor gives the same bits on a device as in the CPU's loops"){
#define DDPRUN_ROW(name, functor_)                                                                              \
  {                                                                                                             \
    INFO(#name);                                                                                                \
    Tensor here = Tensor::empty_like(a), there = Tensor::empty_like(a);                                         \
    kernels::table({}).binary(kernels::Binary::name, arguments, a, b, here);                                    \
    run_binary(kernels::Binary::name, arguments, count, a.data<float>(), b.data<float>(), there.data<float>()); \
    CHECK(same(here, there));                                                                                   \
    for (int operand : {0, 1}) {                                                                                \
      kernels::table({}).binary_gradient(kernels::Binary::name, arguments, operand, a, b, grad, here);          \
      run_binary_gradient(kernels::Binary::name, arguments, operand, count, a.data<float>(), b.data<float>(),   \
                          grad.data<float>(), there.data<float>());                                             \
      CHECK(same(here, there));                                                                                 \
    }                                                                                                           \
  }
    DDPRUN_BINARY_FUNCTORS(DDPRUN_ROW)
#undef DDPRUN_ROW
}

TEST_CASE("exp, log, tanh and erf are within two units of the last place") {
  using Math = double (*)(double);
  CHECK(worst_error(
            -87, 88.7F, [](float x) { return functor::exp(x); }, Math(std::exp)) <= 2);
  CHECK(worst_error(
            1e-30F, 100, [](float x) { return functor::log(x); }, Math(std::log)) <= 2);
  CHECK(worst_error(
            0.5F, 2, [](float x) { return functor::log(x); }, Math(std::log)) <= 2);
  CHECK(worst_error(
            -10, 10, [](float x) { return functor::tanh(x); }, Math(std::tanh)) <= 2);
  CHECK(worst_error(
            -5, 5, [](float x) { return functor::erf(x); }, Math(std::erf)) <= 2);
}

TEST_CASE("bounded_exp and softmax_exp are exp, but for what is no normal number") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (float x = -87; x < 88.3F; x += 0.37F) {
    CHECK(functor::bounded_exp(x) == functor::exp(x));
    CHECK(functor::softmax_exp(x) == functor::exp(x));
  }
  CHECK(functor::bounded_exp(-infinity) == functor::exp(-87.0F));
  CHECK(functor::bounded_exp(88.4F) == infinity);
  CHECK(functor::bounded_exp(infinity) == infinity);
  CHECK(functor::softmax_exp(-87.1F) == 0);
  CHECK(functor::softmax_exp(-infinity) == 0);
  CHECK(std::isnan(functor::bounded_exp(NAN)));
  CHECK(std::isnan(functor::softmax_exp(NAN)));
}

TEST_CASE("exp and log at the ends of their ranges") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(functor::exp(89.0F) == infinity);
  CHECK(functor::exp(infinity) == infinity);
  CHECK(functor::exp(-infinity) == 0);
  CHECK(functor::exp(0.0F) == 1);
  CHECK(std::isnan(functor::exp(NAN)));
  CHECK(functor::log(0.0F) == -infinity);
  CHECK(functor::log(infinity) == infinity);
  CHECK(functor::log(1.0F) == 0);
  CHECK(std::isnan(functor::log(-1.0F)));
  CHECK(std::isnan(functor::log(NAN)));
  CHECK(functor::log(1e-40F) == Approx(std::log(1e-40)));
}

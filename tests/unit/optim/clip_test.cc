#include "worker/optim/clip.h"

#include <cmath>
#include <limits>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

// Returns a parameter with this gradient.
template <class T>
Variable with_gradient(const std::vector<T>& gradient) {
  const Tensor values = Tensor::from<T>(gradient, {static_cast<std::int64_t>(gradient.size())});
  Variable parameter(Tensor::zeros_like(values), true);
  parameter.set_grad_storage(values.clone());
  Tensor target = parameter.grad();
  target.copy_from(values);
  return parameter;
}

template <class T>
std::vector<T> gradient_of(const Variable& parameter) {
  return {parameter.grad().data<T>(), parameter.grad().data<T>() + parameter.grad().numel()};
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the norm is that of all gradients together, and what is above the bound is scaled down") {
  const Variable a = with_gradient<double>({2, -4, 4}), b = with_gradient<float>({8}), none(Tensor::zeros({2}), true);
  const optim::NamedParameters all = {{"a", a}, {"none", none}, {"b", b}};
  CHECK(optim::clip_grad_norm(all, 100) == 10);
  CHECK(gradient_of<double>(a) == std::vector<double>{2, -4, 4});
  CHECK(optim::clip_grad_norm(all, 5) == 10);
  const double factor = 5 / (10 + 1e-6);
  CHECK(gradient_of<double>(a) == std::vector<double>{2 * factor, -4 * factor, 4 * factor});
  CHECK(gradient_of<float>(b)[0] == Approx(8 * factor));
  CHECK_FALSE(none.grad().defined());
  CHECK(optim::clip_grad_norm(all, 100) == Approx(5).epsilon(1e-6));
}

TEST_CASE("the norm counts every element once, whatever their number") {
  for (const int count : {1, 7, 8, 9, 16, 21}) {
    INFO(count);
    std::vector<float> gradient;
    double squares = 0;
    for (int i = 1; i <= count; ++i) {
      gradient.push_back(static_cast<float>(i));
      squares += i * i;
    }
    CHECK(optim::clip_grad_norm({{"p", with_gradient(gradient)}}, 1e9) == std::sqrt(squares));
  }
}

TEST_CASE("a norm that is not finite shows, and the gradients become zero or NaN") {
  const Variable infinite = with_gradient<double>({infinity, 1}), nan = with_gradient<double>({std::nan(""), 1});
  CHECK(optim::clip_grad_norm({{"p", infinite}}, 1) == infinity);
  CHECK(std::isnan(gradient_of<double>(infinite)[0]));
  CHECK(gradient_of<double>(infinite)[1] == 0);
  CHECK(std::isnan(optim::clip_grad_norm({{"p", nan}}, 1)));
  CHECK(std::isnan(gradient_of<double>(nan)[1]));
}

TEST_CASE("clipping by value limits each element") {
  const Variable a = with_gradient<double>({2, -4, 0.25}), b = with_gradient<float>({-0.5, 8});
  optim::clip_grad_value({{"a", a}, {"none", Variable(Tensor::zeros({2}), true)}, {"b", b}}, 0.5);
  CHECK(gradient_of<double>(a) == std::vector<double>{0.5, -0.5, 0.25});
  CHECK(gradient_of<float>(b) == std::vector<float>{-0.5, 0.5});
  const Variable nan = with_gradient<double>({std::nan("")});
  optim::clip_grad_value({{"p", nan}}, 1);
  CHECK(std::isnan(gradient_of<double>(nan)[0]));
}

TEST_CASE("clipping has a bound above 0") {
  for (const double bound : {0.0, -1.0, std::nan("")}) {
    CHECK_THROWS_AS(optim::clip_grad_norm({}, bound), Error);
    CHECK_THROWS_AS(optim::clip_grad_value({}, bound), Error);
  }
  CHECK_THROWS_WITH(optim::clip_grad_norm({}, -1), "gradient clipping: max_norm is -1, but has to be above 0");
}

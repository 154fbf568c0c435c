#include "worker/optim/grad_scaler.h"

#include <cmath>
#include <limits>

#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;
using optim::GradScaler;

namespace {

optim::NamedParameters with_gradients(const std::vector<Tensor>& gradients) {
  optim::NamedParameters parameters;
  for (const Tensor& gradient : gradients) {
    Variable parameter(Tensor::zeros(gradient.shape()), true);
    parameter.set_grad_storage(Tensor::zeros(gradient.shape()));
    Tensor(parameter.grad()).copy_from(gradient);
    parameters.emplace_back("p" + std::to_string(parameters.size()), parameter);
  }
  return parameters;
}

}  // namespace

TEST_CASE("unscale divides the gradients by the scale") {
  const GradScaler scaler({.scale = 1024});
  const auto parameters = with_gradients({Tensor::full({3}, 512), Tensor::full({2, 2}, -2048)});
  CHECK(scaler.unscale(parameters));
  CHECK(values(parameters[0].second.grad()) == std::vector<double>(3, 0.5));
  CHECK(values(parameters[1].second.grad()) == std::vector<double>(4, -2));
}

TEST_CASE("unscale finds an infinity and a NaN in any gradient, and passes over parameters without one") {
  const GradScaler scaler;
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    Tensor last = Tensor::zeros({70});
    last.data<float>()[69] = static_cast<float>(bad);
    CHECK_FALSE(scaler.unscale(with_gradients({Tensor::full({3}, 1), last})));
  }
  CHECK(scaler.unscale({{"without", Variable(Tensor::zeros({2}), true)}}));
}

TEST_CASE("the scale grows and backs off as PyTorch's does") {
  const optim::GradScalerOptions options{.scale = 1000, .growth = 3, .backoff = 0.25, .growth_interval = 4};
  GradScaler scaler(options);
  // This restates torch._amp_update_scale_.
  double scale = options.scale;
  std::int64_t tracker = 0;
  Generator generator(5);
  int grown = 0, lowered = 0;
  for (int step = 0; step < 500; ++step) {
    const bool finite = generator.uniform() < 0.9;
    if (!finite) {
      scale *= options.backoff;
      tracker = 0;
      ++lowered;
    } else if (++tracker == options.growth_interval) {
      scale *= options.growth;
      tracker = 0;
      ++grown;
    }
    scaler.update(finite);
    CHECK(scaler.scale() == scale);
    CHECK(scaler.state().good_steps == tracker);
  }
  CHECK(grown > 20);
  CHECK(lowered > 20);
}

TEST_CASE("the defaults are PyTorch's, and the scale stays within float32") {
  GradScaler scaler;
  CHECK(scaler.scale() == 65536);
  for (int step = 0; step < 1999; ++step) scaler.update(true);
  CHECK(scaler.scale() == 65536);
  scaler.update(true);
  CHECK(scaler.scale() == 131072);
  GradScaler large({.scale = 3e38, .growth_interval = 1});
  large.update(true);
  CHECK(large.scale() == 3e38);
}

TEST_CASE("a scaler goes on from a state") {
  GradScaler first({.growth_interval = 3}), second({.growth_interval = 3});
  for (const bool finite : {true, false, true, true}) first.update(finite);
  second.set_state(first.state());
  first.update(true);
  second.update(true);
  CHECK(second.scale() == first.scale());
  CHECK(second.scale() == 65536);
}

TEST_CASE("options of a scaler out of bounds are errors") {
  CHECK_THROWS_WITH(GradScaler({.scale = 0}), Catch::Contains("0 is not above 0"));
  CHECK_THROWS_WITH(GradScaler({.growth = 0.5}), Catch::Contains("growth of 0.5"));
  CHECK_THROWS_WITH(GradScaler({.backoff = 1}), Catch::Contains("backoff of 1"));
  CHECK_THROWS_WITH(GradScaler({.growth_interval = 0}), Catch::Contains("interval of 0"));
}

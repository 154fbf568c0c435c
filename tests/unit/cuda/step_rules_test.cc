// The decision about a step on an emulated device is that of the host's loss scale and outlier filter.
#include "worker/tensor/step_rules.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "worker/optim/grad_scaler.h"
#include "worker/optim/outlier_filter.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;
using kernels::StepState;

namespace {

// A device's memory for the decision.
class Decision {
 public:
  explicit Decision(double loss_scale) : state_(state_with(loss_scale)) {}

  // Returns whether the step is left out.
  bool decide(const kernels::StepRules& rules, double norm, bool finite, bool cancelled = false) {
    const DeviceTensor not_finite(Tensor::full({}, finite ? 0 : 1)), stop(Tensor::full({}, cancelled ? 1 : 0)),
        square_sum(Tensor::full({}, norm * norm, DType::float64));
    check(device_api().decide_step(test_device(), rules,
                                   {.cancelled = static_cast<const float*>(stop.view().data),
                                    .not_finite = static_cast<const float*>(not_finite.view().data),
                                    .square_sum = static_cast<const double*>(square_sum.view().data)},
                                   state_.view(), loss_scale_.view(), skip_.view()));
    return skip_.read().item() != 0;
  }
  StepState state() const {
    StepState result;
    std::memcpy(&result, state_.read().raw(), sizeof(result));
    return result;
  }
  double loss_scale() const { return loss_scale_.read().item(); }

 private:
  static Tensor state_with(double loss_scale) {
    const StepState start{.loss_scale = loss_scale};
    Tensor numbers = Tensor::empty({kernels::step_state_size}, DType::float64);
    std::memcpy(numbers.raw(), &start, sizeof(start));
    return numbers;
  }

  DeviceTensor state_;
  DeviceTensor loss_scale_{Tensor::zeros({})}, skip_{Tensor::full({}, 7)};
};

}  // namespace

TEST_CASE("a device decides about each step as the host's loss scale and outlier filter do") {
  const bool has_scale = GENERATE(true, false);
  const double factor = GENERATE(0.0, 1.2);
  optim::GradScaler scaler({.scale = 1024, .growth = 3, .backoff = 0.25, .growth_interval = 4});
  optim::OutlierFilter filter(factor);
  const kernels::StepRules rules{.has_loss_scale = has_scale, .loss_scale = scaler.rule(), .outlier_factor = factor};
  Decision decision(1024);
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(0.5, 2);
  int made = 0, left_out = 0;
  for (int step = 0; step < 350; ++step) {
    const bool finite = !has_scale || random() % 6 != 0;
    const double norm = random() % 40 == 0 ? std::numeric_limits<double>::infinity() : std::round(uniform(random) * 20);
    if (has_scale) scaler.update(finite);
    const bool outlier = factor > 0 && finite && filter.note(norm);
    const bool skipped = !finite || outlier;
    INFO("step " << step << ", norm " << norm);
    REQUIRE(decision.decide(rules, norm, finite) == skipped);
    (skipped ? left_out : made) += 1;
    if (factor > 0) {
      const StepState state = decision.state();
      REQUIRE((state.lower_median + state.upper_median) / 2 == filter.median());
    }
    if (has_scale) REQUIRE(decision.loss_scale() == static_cast<double>(static_cast<float>(scaler.scale())));
  }
  const StepState state = decision.state();
  CHECK(state.made == made);
  CHECK(state.left_out == left_out);
  CHECK((left_out > 0) == (has_scale || factor > 0));
  CHECK(state.loss_scale == scaler.scale());
  CHECK(state.good_steps == static_cast<double>(scaler.state().good_steps));
}

TEST_CASE("a step that was cancelled changes nothing, and leaves the device's state as it was") {
  const kernels::StepRules rules{.has_loss_scale = true, .outlier_factor = 2};
  Decision decision(8);
  CHECK_FALSE(decision.decide(rules, 3, true));
  CHECK(decision.decide(rules, 5, false, true));
  CHECK(decision.state().made == 1);
  CHECK(decision.state().left_out == 0);
  CHECK(decision.state().loss_scale == 8);
  CHECK(decision.state().norms_seen == 1);
}

// The gate of updates that a device makes behind the reduction of gradients, and its reading together with losses.
#include "worker/trainer/session/update_gate.h"

#include <functional>

#include "worker/trainer/session/step_values.h"
#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace ddprun;

namespace {

const Device device{DeviceType::cuda, 0};

trainer::TrainConfig config_of(const std::function<void(trainer::TrainConfig&)>& change) {
  trainer::TrainConfig config;
  change(config);
  return config;
}

}  // namespace

TEST_CASE("the host waits for gradients where an update is more than the optimizer's kernels") {
  const auto optimizer_of = [](const trainer::TrainConfig& c) {
    return optim::make_optimizer(c.optim.name, {.momentum = c.optim.momentum, .dampening = c.optim.dampening},
                                 optim::NamedParameters{{"x", Variable(Tensor::zeros({2}), true)}});
  };
  const auto groups = testing::make_thread_groups(2), alone = testing::make_thread_groups(1);
  const auto has_gate = [&](const std::function<void(trainer::TrainConfig&)>& change) {
    const auto config = config_of(change);
    return trainer::UpdateGate::make(config, optimizer_of(config).get(), device, *groups[0]) != nullptr;
  };
  CHECK(has_gate([](auto&) {}));
  const auto dampened = [](double dampening) {
    return [dampening](auto& c) {
      c.optim.name = "sgd";
      c.optim.momentum = 0.9;
      c.optim.dampening = dampening;
    };
  };
  CHECK(has_gate(dampened(0)));
  CHECK_FALSE(has_gate(dampened(0.1)));
  CHECK_FALSE(has_gate([](auto& c) { c.optim.name = "lamb"; }));
  CHECK_FALSE(has_gate([](auto& c) { c.parallel.strategy = "local_sgd"; }));
  const auto optimizer = optimizer_of({});
  CHECK(trainer::UpdateGate::make({}, optimizer.get(), Device{}, *groups[0]) == nullptr);
  CHECK(trainer::UpdateGate::make({}, optimizer.get(), device, *alone[0]) == nullptr);
  CHECK(trainer::UpdateGate::make({}, nullptr, device, *groups[0]) == nullptr);
}

TEST_CASE("losses of steps whose update was cancelled are the group's error when they are read") {
  const auto groups = testing::make_thread_groups(2);
  trainer::UpdateGate gate(device, *groups[0]);
  trainer::StepValues values(device);
  values.add_reader(&gate);
  const auto read = [&](double loss) {
    values.begin(1, 1);
    values.add_loss(Tensor::full({}, loss, DType::float32, device), 1);
    values.wait();
    const auto sums = values.loss_sums();
    values.take(sums);
    return sums;
  };
  CHECK(read(2.5) == std::vector<double>{2.5});
  CHECK(read(3.5) == std::vector<double>{3.5});
  groups[0]->abort("the test aborts it");
  Tensor cancelled = gate.cancelled();
  cancelled.fill(1);
  CHECK_THROWS_WITH(read(4.5), Catch::Matchers::Contains("the test aborts it"));
}

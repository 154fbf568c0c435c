// The gate of updates that a device makes behind the reduction of gradients, and its reading together with losses.
#include "worker/trainer/session/update_gate.h"

#include "worker/trainer/session/step_values.h"
#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace ddprun;

namespace {

const Device device{DeviceType::cuda, 0};

}  // namespace

TEST_CASE("updates on a device are queued behind the gradients of several ranks that average them in each step") {
  const auto groups = testing::make_thread_groups(2), alone = testing::make_thread_groups(1);
  trainer::TrainConfig config;
  CHECK(trainer::UpdateGate::make(config, device, *groups[0]) != nullptr);
  CHECK(trainer::UpdateGate::make(config, Device{}, *groups[0]) == nullptr);
  CHECK(trainer::UpdateGate::make(config, device, *alone[0]) == nullptr);
  config.parallel.strategy = "local_sgd";
  CHECK(trainer::UpdateGate::make(config, device, *groups[0]) == nullptr);
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

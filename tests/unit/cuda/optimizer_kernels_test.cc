// Steps of optimizers on an emulated device give the CPU's bits, for many tensors at once.
#include "worker/tensor/kernels.h"
#include "tests/unit/cuda/tensor_lists.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

const std::vector<DType> wide{DType::float32, DType::float64};

const kernels::Table& cpu() {
  return kernels::table({});
}

std::vector<Tensor> zeros_like(std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors) tensor.fill(0);
  return tensors;
}

void check_sgd(const kernels::SgdStep& step, bool has_momentum) {
  TensorList values(random_tensors(1, wide)), grads(random_tensors(2, wide)), momenta(random_tensors(3, wide));
  cpu().sgd_step(values.host, grads.host, has_momentum ? momenta.host : std::vector<Tensor>(), {}, step);
  check(device_api().sgd_step(test_device(), values.size(), values.views(), grads.views(),
                              has_momentum ? momenta.views() : nullptr, nullptr, step));
  CHECK(values.differences() == 0);
  CHECK(momenta.differences() == 0);
}

void check_adam(const kernels::AdamStep& step) {
  auto positive = random_tensors(4, wide);
  for (Tensor& tensor : positive) tensor = kernels::unary(kernels::Unary::abs, tensor);
  TensorList values(random_tensors(1, wide)), grads(random_tensors(2, wide)), averages(random_tensors(3, wide)),
      squares(positive);
  cpu().adam_step(values.host, grads.host, averages.host, squares.host, step);
  check(device_api().adam_step(test_device(), values.size(), values.views(), grads.views(), averages.views(),
                               squares.views(), step));
  CHECK(values.differences() == 0);
  CHECK(averages.differences() == 0);
  CHECK(squares.differences() == 0);
}

}  // namespace

TEST_CASE("every variant of SGD gives the CPU's bits") {
  check_sgd({.lr = 0.1, .momentum = 0, .weight_decay = 0.01}, false);
  check_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}, true);
  check_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0, .dampening = 0.2}, true);
  check_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, true);
}

TEST_CASE("every variant of Adam gives the CPU's bits") {
  const kernels::AdamStep step{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 3};
  check_adam(step);
  kernels::AdamStep decoupled = step;
  decoupled.decoupled = true;
  check_adam(decoupled);
  kernels::AdamStep frozen = step;
  frozen.freeze_step = 2;
  check_adam(frozen);
}

TEST_CASE("the momentum of each tensor starts as its gradient, in the first step that is made") {
  TensorList values(random_tensors(1, wide)), grads(random_tensors(2, wide)), momenta(random_tensors(3, wide));
  std::vector<Tensor> numbers;  // every second momentum has started
  for (std::size_t i = 0; i < values.size(); ++i) numbers.push_back(Tensor::full({}, i % 2 == 0 ? 0 : 1, DType::int64));
  TensorList started(numbers);
  const DeviceTensor skip(Tensor::full({1}, 1));
  kernels::SgdStep step{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .dampening = 0.2};
  const auto on_device = [&] {
    check(device_api().sgd_step(test_device(), values.size(), values.views(), grads.views(), momenta.views(),
                                started.views(), step));
  };
  step.skip = static_cast<const float*>(skip.view().data);
  on_device();
  CHECK(started.differences() == 0);
  step.skip = nullptr;
  for (int i = 0; i < 2; ++i) {
    on_device();
    cpu().sgd_step(values.host, grads.host, momenta.host, started.host, step);
    CHECK(values.differences() == 0);
    CHECK(momenta.differences() == 0);
  }
}

TEST_CASE("Adam counts the steps that the device has left out as not made") {
  const double left_out = GENERATE(0.0, 2.0);
  const DeviceTensor number(Tensor::full({}, left_out, DType::float64));
  const kernels::AdamStep made{
      .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 5 - std::int64_t(left_out)};
  kernels::AdamStep counted = made;
  counted.step = 5;
  counted.left_out = static_cast<const double*>(number.view().data);
  auto positive = random_tensors(4, wide);
  for (Tensor& tensor : positive) tensor = kernels::unary(kernels::Unary::abs, tensor);
  TensorList values(random_tensors(1, wide)), grads(random_tensors(2, wide)), averages(random_tensors(3, wide)),
      squares(positive);
  cpu().adam_step(values.host, grads.host, averages.host, squares.host, made);
  check(device_api().adam_step(test_device(), values.size(), values.views(), grads.views(), averages.views(),
                               squares.views(), counted));
  CHECK(values.differences() == 0);
}

TEST_CASE("averages of parameters have the CPU's bits, and start with the first step that the device has made") {
  const double made = GENERATE(1.0, 2.0);
  const DeviceTensor number(Tensor::full({}, made, DType::float64));
  TensorList averages(random_tensors(1, wide)), values(random_tensors(2, wide));
  const auto on_device = [&](const kernels::EmaStep& step) {
    check(device_api().ema_step(test_device(), averages.size(), averages.views(), values.views(), step));
  };
  cpu().ema_step(averages.host, values.host, {.decay = 0.9, .first = made == 1});
  on_device({.decay = 0.9, .first = true, .made = static_cast<const double*>(number.view().data)});
  CHECK(averages.differences() == 0);
  cpu().ema_step(averages.host, values.host, {.decay = 0.9});
  on_device({.decay = 0.9});
  CHECK(averages.differences() == 0);
  const DeviceTensor skip(Tensor::full({1}, 1));
  on_device({.decay = 0.5, .skip = static_cast<const float*>(skip.view().data)});
  CHECK(averages.differences() == 0);
}

TEST_CASE("a number on the device decides whether steps change anything") {
  const float number = GENERATE(0.0F, 1.0F);
  const DeviceTensor skip(Tensor::full({1}, number));
  kernels::SgdStep sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01};
  kernels::AdamStep adam{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 3};
  TensorList values(random_tensors(1, wide)), grads(random_tensors(2, wide)), state(random_tensors(3, wide)),
      squares(zeros_like(random_tensors(1, wide)));
  if (number == 0) {
    cpu().sgd_step(values.host, grads.host, state.host, {}, sgd);
    cpu().adam_step(values.host, grads.host, state.host, squares.host, adam);
  }
  sgd.skip = adam.skip = static_cast<const float*>(skip.view().data);
  check(
      device_api().sgd_step(test_device(), values.size(), values.views(), grads.views(), state.views(), nullptr, sgd));
  check(device_api().adam_step(test_device(), values.size(), values.views(), grads.views(), state.views(),
                               squares.views(), adam));
  CHECK(values.differences() == 0);
  CHECK(state.differences() == 0);
  CHECK(squares.differences() == 0);
}

TEST_CASE("a step of the parameters of a GPT of 12 blocks is two kernels") {
  std::vector<Tensor> all;
  for (int i = 0; i < 148; ++i) all.push_back(random_tensor({8}, static_cast<std::uint64_t>(i)));
  const TensorList values(all), grads(all), averages(all), squares(all);
  const kernels::AdamStep step{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .step = 3};
  CHECK(launches_of([&] {
          return device_api().adam_step(test_device(), values.size(), values.views(), grads.views(), averages.views(),
                                        squares.views(), step);
        }) == 2);
  CHECK(launches_of([&] {
          return device_api().sgd_step(test_device(), values.size(), values.views(), grads.views(), averages.views(),
                                       nullptr, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0});
        }) == 2);
}

TEST_CASE("16-bit values are not updated in place") {
  const DeviceTensor x(Tensor::zeros({4}, DType::bfloat16));
  CHECK_THROWS_WITH(check(device_api().sgd_step(test_device(), 1, &x.view(), &x.view(), nullptr, nullptr,
                                                {.lr = 1, .momentum = 0, .weight_decay = 0})),
                    "sgd_step of bfloat16 tensors is not supported on cuda:0");
}

// Steps of optimizers on an emulated device give the CPU's bits.
#include "ddprun/worker/tensor/kernels.h"
#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

struct Extent {
  std::int64_t count, shift;
};
const std::vector<Extent> extents{{0, 0}, {1, 0}, {67, 1}, {2500, 0}};

const kernels::Table& cpu() {
  return kernels::table({});
}

void check_sgd(const kernels::SgdStep& step, bool has_momentum) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Extent& extent : extents) {
      INFO(name_of(dtype) << ", " << extent.count);
      Tensor value = random_tensor({extent.count}, 1, dtype), grad = random_tensor({extent.count}, 2, dtype);
      Tensor momentum = has_momentum ? random_tensor({extent.count}, 3, dtype) : Tensor();
      const DeviceTensor on_value(value, extent.shift), on_grad(grad), on_momentum(has_momentum ? momentum : grad);
      cpu().sgd_step(value, grad, momentum, step);
      check(device_api().sgd_step(test_device(), on_value.view(), on_grad.view(),
                                  has_momentum ? on_momentum.view() : left_out, step));
      CHECK(same_values(on_value.read(), value));
      if (has_momentum) CHECK(same_values(on_momentum.read(), momentum));
    }
  }
}

void check_adam(const kernels::AdamStep& step) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Extent& extent : extents) {
      INFO(name_of(dtype) << ", " << extent.count);
      const Shape shape{extent.count};
      Tensor value = random_tensor(shape, 1, dtype), grad = random_tensor(shape, 2, dtype);
      Tensor average = random_tensor(shape, 3, dtype);
      Tensor squares = kernels::unary(kernels::Unary::abs, random_tensor(shape, 4, dtype));
      const DeviceTensor on_value(value, extent.shift), on_grad(grad), on_average(average), on_squares(squares);
      cpu().adam_step(value, grad, average, squares, step);
      check(device_api().adam_step(test_device(), on_value.view(), on_grad.view(), on_average.view(), on_squares.view(),
                                   step));
      CHECK(same_values(on_value.read(), value));
      CHECK(same_values(on_average.read(), average));
      CHECK(same_values(on_squares.read(), squares));
    }
  }
}

}  // namespace

TEST_CASE("every variant of SGD gives the CPU's bits") {
  check_sgd({.lr = 0.1, .momentum = 0, .weight_decay = 0.01}, false);
  check_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}, true);
  check_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0, .dampening = 0.2, .first = true}, true);
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

TEST_CASE("16-bit values are not updated in place") {
  const DeviceTensor x(Tensor::zeros({4}, DType::bfloat16));
  CHECK_THROWS_WITH(check(device_api().sgd_step(test_device(), x.view(), x.view(), left_out,
                                                {.lr = 1, .momentum = 0, .weight_decay = 0})),
                    "sgd_step of bfloat16 tensors is not supported on cuda:0");
}

// Losses of classes on an emulated device, and their gradients.
#include <cmath>

#include "ddprun/worker/tensor/kernels.h"
#include "tests/support/numerics.h"
#include "tests/unit/cuda/device_tensor.h"

using namespace ddprun;
using namespace ddprun::test;
using Options = kernels::CrossEntropyOptions;

namespace {

const kernels::Table& cpu() {
  return kernels::table({});
}

struct Batch {
  Tensor log_probabilities, targets;
};
Batch random_batch(std::int64_t rows, std::int64_t classes, std::int64_t ignored, DType dtype) {
  Batch batch{Tensor::empty({rows, classes}), Tensor::empty({rows}, DType::int64)};
  cpu().softmax(random_tensor({rows, classes}, 1), {rows, classes, 1}, true, batch.log_probabilities);
  batch.log_probabilities = batch.log_probabilities.to(dtype);
  for (std::int64_t row = 0; row < rows; ++row)
    batch.targets.data<std::int64_t>()[row] = row % 5 == 3 ? ignored : row * 7 % classes;
  return batch;
}

template <class Visit>
void for_each_case(Visit visit) {
  for (const DType dtype : floating_types) {
    for (const Shape& shape : {Shape{1, 1}, Shape{7, 10}, Shape{33, 64}, Shape{5, 1100}, Shape{2100, 3}}) {
      for (const double smoothing : {0.0, 0.1}) {
        const Options options{.label_smoothing = smoothing, .ignore_index = -100};
        INFO(name_of(dtype) << ", " << to_string(shape) << ", smoothing " << smoothing);
        visit(random_batch(shape[0], shape[1], -100, dtype), options);
      }
    }
  }
}

}  // namespace

TEST_CASE("the loss is the CPU's to a rounding") {
  for_each_case([](const Batch& batch, const Options& options) {
    const Tensor expected = cpu().nll_loss(batch.log_probabilities, batch.targets, options);
    const DeviceTensor x(batch.log_probabilities, 1), targets(batch.targets), loss(expected);
    check(device_api().nll_loss(test_device(), x.view(), targets.view(), options, loss.view()));
    // Rows are added in double, the classes of a row in another order where there is smoothing.
    const double most = expected.dtype() == DType::float64    ? 1e-13
                        : expected.dtype() == DType::bfloat16 ? 0x1p-7
                        : expected.dtype() == DType::float16  ? 0x1p-10
                                                              : 1e-6;
    CHECK(std::abs(loss.read().item() - expected.item()) <= most * std::abs(expected.item()));
  });
}

TEST_CASE("the gradients of losses give the CPU's bits") {
  for_each_case([](const Batch& batch, const Options& options) {
    for (const std::int64_t shift : {0, 1}) {
      const DeviceTensor x(batch.log_probabilities, shift), targets(batch.targets), out(batch.log_probabilities, shift);
      check(device_api().nll_loss_backward(test_device(), x.view(), targets.view(), options, 1.7, out.view()));
      CHECK(same_results(out.read(), cpu().nll_loss_backward(batch.log_probabilities, batch.targets, options, 1.7)));
      check(device_api().cross_entropy_backward(test_device(), x.view(), targets.view(), options, 1.7, out.view()));
      CHECK(
          same_results(out.read(), cpu().cross_entropy_backward(batch.log_probabilities, batch.targets, options, 1.7)));
    }
  });
}

TEST_CASE("a batch of which no row counts has no loss and no gradient") {
  const Batch batch = random_batch(4, 3, 2, DType::float32);
  const Tensor targets = Tensor::full({4}, 2, DType::int64);
  const Options options{.ignore_index = 2};
  const DeviceTensor x(batch.log_probabilities), on_targets(targets), out(batch.log_probabilities),
      loss(Tensor::zeros({}));
  check(device_api().nll_loss(test_device(), x.view(), on_targets.view(), options, loss.view()));
  CHECK(std::isnan(loss.read().item()));
  check(device_api().cross_entropy_backward(test_device(), x.view(), on_targets.view(), options, 1, out.view()));
  CHECK(same_bits(out.read(), Tensor::zeros({4, 3})));
}

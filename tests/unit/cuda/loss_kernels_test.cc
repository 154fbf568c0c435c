// Losses of classes on an emulated device, and their gradients.
#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/tensor/kernels.h"
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

// --- an output layer and its loss

namespace {

struct OutputLayer {
  OutputLayer(std::int64_t rows, std::int64_t classes, DType dtype)
      : input(random_tensor({rows, 6}, 1).to(dtype)),
        weight(random_tensor({classes, 6}, 2).to(dtype)),
        targets(random_batch(rows, classes, -100, dtype).targets),
        wide(dtype == DType::float64 ? dtype : DType::float32) {}
  Tensor input, weight, targets;
  DType wide;
};

struct OutputLoss {
  Tensor loss, share, input, weight;
};
OutputLoss loss_of(const OutputLayer& layer, const kernels::LinearLossOptions& options, std::int64_t shift = 0) {
  const DeviceTensor input(layer.input), weight(layer.weight), targets(layer.targets, shift);
  const DeviceTensor loss(Tensor::zeros({}, layer.wide)), share(Tensor::zeros({}, layer.wide));
  const DeviceTensor input_grad(Tensor::full(layer.input.shape(), NAN, layer.wide));
  const DeviceTensor weight_grad(Tensor::full(layer.weight.shape(), NAN, layer.wide));
  check(device_api().linear_cross_entropy(test_device(), input.view(), weight.view(), targets.view(), options,
                                          loss.view(), share.view(), input_grad.view(), weight_grad.view()));
  return {loss.read(), share.read(), input_grad.read(), weight_grad.read()};
}

// Returns the loss of all scores at once, in double.
kernels::LinearLoss expected_loss(const OutputLayer& layer, const Options& options) {
  return cpu().linear_cross_entropy(layer.input.to(DType::float64), layer.weight.to(DType::float64), layer.targets,
                                    {.cross_entropy = options}, DType::float64, true);
}

template <class Visit>
void for_each_layer(Visit visit) {
  for (const DType dtype : floating_types) {
    for (const auto& [rows, classes] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 10}, {33, 64}, {5, 1100}, {300, 3}}) {
      for (const double smoothing : {0.0, 0.1}) {
        INFO(name_of(dtype) << ", " << rows << " rows of " << classes << ", smoothing " << smoothing);
        visit(OutputLayer(rows, classes, dtype), Options{.label_smoothing = smoothing, .ignore_index = -100});
      }
    }
  }
}

}  // namespace

TEST_CASE("an output layer's loss and its gradients are those of whole scores, whatever the chunks") {
  for_each_layer([](const OutputLayer& layer, const Options& options) {
    const kernels::LinearLoss expected = expected_loss(layer, options);
    const double bound = layer.wide == DType::float64 ? 1e-12 : layer.input.dtype() == DType::float32 ? 1e-5 : 0.03;
    for (const std::int64_t bytes : {std::int64_t{1} << 28, std::int64_t{2000}, std::int64_t{1}}) {
      const OutputLoss found = loss_of(layer, {.cross_entropy = options, .chunk_bytes = bytes});
      CHECK(std::abs(found.loss.item() - expected.loss.item()) <= bound * std::max(1.0, expected.loss.item()));
      CHECK(std::abs(found.share.item() - expected.share.item()) <= 1e-6);
      CHECK(difference(found.input, expected.input) <= bound);
      CHECK(difference(found.weight, expected.weight) <= bound);
    }
  });
}

TEST_CASE("an output layer's loss has the same bits however its targets are aligned, and again") {
  for_each_layer([](const OutputLayer& layer, const Options& options) {
    const kernels::LinearLossOptions chunks{.cross_entropy = options, .chunk_bytes = 2000};
    const OutputLoss first = loss_of(layer, chunks), again = loss_of(layer, chunks, 1);
    CHECK(same_values(first.loss, again.loss));
    CHECK(same_values(first.input, again.input));
    CHECK(same_values(first.weight, again.weight));
  });
}

TEST_CASE("an output layer's loss alone computes no gradients") {
  const OutputLayer layer(9, 5, DType::float32);
  const DeviceTensor input(layer.input), weight(layer.weight), targets(layer.targets), loss(Tensor::zeros({})),
      share(Tensor::zeros({}));
  const std::uint64_t before = device_api().launches(test_device());
  check(device_api().linear_cross_entropy(test_device(), input.view(), weight.view(), targets.view(), {}, loss.view(),
                                          share.view(), left_out, left_out));
  CHECK(device_api().launches(test_device()) - before == 3);
  CHECK(loss.read().item() == loss_of(layer, {}).loss.item());
}

TEST_CASE("an output layer of which no row counts has no loss, and gradients of 0") {
  OutputLayer layer(4, 3, DType::float32);
  layer.targets = Tensor::full({4}, -100, DType::int64);
  const OutputLoss found = loss_of(layer, {});
  CHECK(std::isnan(found.loss.item()));
  CHECK(found.share.item() == 0);
  CHECK(same_values(found.input, Tensor::zeros_like(found.input)));
  CHECK(same_values(found.weight, Tensor::zeros_like(found.weight)));
}

TEST_CASE("a score that is no number makes the output layer's loss none") {
  OutputLayer layer(4, 3, DType::float32);
  layer.input.data<float>()[7] = NAN;
  CHECK(std::isnan(loss_of(layer, {}).loss.item()));
}

TEST_CASE("a tensor is scaled by two numbers of the device, into another or added to it") {
  for (const DType out_type : floating_types) {
    const DType wide = out_type == DType::float64 ? DType::float64 : DType::float32;
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t shift : {0, 1}) {
        const Tensor x = random_tensor({67}, 1).to(wide), before = random_tensor({67}, 2).to(out_type);
        const Tensor a = Tensor::full({}, 0.5, wide), b = Tensor::full({}, -3, wide);
        const DeviceTensor on_x(x, shift), on_a(a), on_b(b), out(before, shift);
        check(device_api().scale_by(test_device(), on_x.view(), on_a.view(), on_b.view(), out.view(), accumulate));
        Tensor expected = before.clone();
        cpu().scale_by(x, a, b, expected, accumulate);
        CHECK(same_values(out.read(), expected));
      }
    }
  }
}

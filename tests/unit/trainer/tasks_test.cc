#include "worker/tasks/tasks.h"

#include <cmath>

#include "common/error.h"
#include "worker/data/digits.h"
#include "worker/data/mixup.h"
#include "worker/data/random_tensors.h"
#include "worker/data/tokens.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::tasks;

namespace {

const data::SampleLayout labels{.input_shape = {2}, .classes = 3};
const data::SampleLayout numbers{.input_shape = {2}, .target_shape = {4}, .target_dtype = DType::float32};

data::Batch batch_of(Tensor target) {
  data::Batch batch;
  batch.samples.resize(static_cast<std::size_t>(target.size(0)));
  batch.add("input", Tensor::zeros({target.size(0), 2}, DType::float32));
  batch.add("target", std::move(target));
  return batch;
}

// Returns a model that gives the same output whatever its input is.
Forward always(Tensor output) {
  return [output](const Variable&) { return Variable(output); };
}

}  // namespace

TEST_CASE("the task follows from the samples, or from its name") {
  CHECK(task_names() == std::vector<std::string>{"auto", "classification", "language_modelling", "regression",
                                                 "distillation", "mean_output"});
  CHECK(make_task("auto", {.layout = labels})->outputs() == 3);
  CHECK(make_task("classification", {.layout = labels})->outputs() == 3);
  CHECK(make_task("auto", {.layout = numbers})->outputs() == 4);
  CHECK_THROWS_WITH(make_task("classification", {.layout = numbers}),
                    "classification needs class labels, this data set has none");
  CHECK_THROWS_WITH(make_task("regression", {.layout = labels}),
                    "regression needs numbers as targets, this data set has none");
}

TEST_CASE("a classification has the mean cross-entropy and counts the labels that score highest") {
  const auto task = make_task("auto", {.layout = labels});
  const auto model = always(Tensor::from(std::vector<float>{2, 0, 0, 0, 0, 1}, {2, 3}));
  const auto batch = batch_of(Tensor::from(std::vector<std::int64_t>{0, 1}, {2}));
  const double expected = (std::log(std::exp(2.0) + 2) - 2 + std::log(std::exp(1.0) + 2)) / 2;
  const auto [loss, weight] = task->loss(model, batch);
  CHECK(loss.value().item() == Approx(expected).epsilon(1e-6));
  CHECK(weight == 2);

  std::vector<double> sums(task->sum_count());
  task->add_to(sums, model, batch);
  task->add_to(sums, model, batch_of(Tensor::from(std::vector<std::int64_t>{1, 2}, {2})));
  const auto found = task->finish(sums);
  CHECK(found.accuracy == 0.5);
  CHECK(found.others.empty());
}

TEST_CASE("a classification of mixed samples has the cross-entropy with the shares of their classes") {
  const auto task = make_task("auto", {.layout = labels});
  const std::vector<float> scores{2, 0, -1, 0.5, 0, 1}, shares{0.75F, 0, 0.25F, 0, 1, 0};
  auto batch = batch_of(Tensor::from(std::vector<std::int64_t>{0, 1}, {2}));
  batch.add(data::Mixup::class_shares, Tensor::from(shares, {2, 3}));
  double expected = 0;
  for (std::size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(static_cast<double>(scores[3 * row + c]));
    for (std::size_t c = 0; c < 3; ++c)
      expected += static_cast<double>(shares[3 * row + c]) * (std::log(sum) - static_cast<double>(scores[3 * row + c]));
  }
  const auto [loss, weight] = task->loss(always(Tensor::from(scores, {2, 3})), batch);
  CHECK(loss.value().item() == Approx(expected / 2).epsilon(1e-6));
  CHECK(weight == 2);
}

TEST_CASE("a regression has the mean squared error, every sample alike, and no accuracy") {
  const auto task = make_task("auto", {.layout = numbers});
  const auto zeros = [](std::int64_t count) { return always(Tensor::zeros({count, 4}, DType::float32)); };
  std::vector<double> sums(task->sum_count());
  task->add_to(sums, zeros(3), batch_of(Tensor::full({3, 4}, 1.0, DType::float32)));
  task->add_to(sums, zeros(1), batch_of(Tensor::full({1, 4}, 2.0, DType::float32)));
  const auto found = task->finish(sums);
  CHECK(found.loss == Approx((3 * 1.0 + 4.0) / 4));
  CHECK_FALSE(found.accuracy);
}

TEST_CASE("language modelling counts tokens, each once, and knows perplexity and bits per byte") {
  const data::SampleLayout layout{.input_shape = {2},
                                  .input_dtype = DType::int64,
                                  .target_shape = {2},
                                  .target_dtype = DType::int64,
                                  .vocabulary = 256};
  const auto task = tasks::make_task("auto", {.layout = layout});
  CHECK(task->outputs() == 256);
  CHECK(task->items_per_sample() == 2);
  data::Batch batch;
  batch.add("input", Tensor::zeros({2, 2}, DType::int64));
  batch.add("target", Tensor::from<std::int64_t>({1, 2, 3, data::ignored_target}, {2, 2}));
  batch.samples = {0, 1};
  const tasks::Forward uniform = [](const Variable& input) {
    return Variable(Tensor::zeros({input.shape()[0], input.shape()[1], 256}));
  };
  std::vector<double> sums(task->sum_count());
  task->add_to(sums, uniform, batch);
  CHECK(sums[1] == 3);
  const auto result = task->finish(sums);
  CHECK(result.loss == Approx(std::log(256.0)));
  REQUIRE(result.others.size() == 2);
  CHECK(result.others[0].value == Approx(256.0));
  CHECK(result.others[1].value == Approx(8.0));
  CHECK_THROWS_WITH(tasks::make_task("regression", {.layout = layout}), Catch::Contains("regression needs"));
}

TEST_CASE("mean_output has the mean of the outputs, whatever the targets") {
  const auto task = make_task("mean_output", {.layout = numbers});
  CHECK(task->outputs() == 4);
  const auto model = always(Tensor::from(std::vector<float>{2, 0, 0, 0, 0, 1, 5, 0}, {2, 4}));
  const auto [loss, weight] = task->loss(model, batch_of(Tensor::full({2, 4}, 9.0, DType::float32)));
  CHECK(loss.value().item() == 1);
  CHECK(weight == 2);
}

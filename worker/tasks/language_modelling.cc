#include <cmath>
#include <numbers>
#include <utility>

#include "worker/autograd/deferred_output.h"
#include "worker/autograd/ops/loss.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/output_loss.h"
#include "worker/autograd/ops/shape.h"
#include "worker/data/tokens.h"
#include "worker/tasks/tasks.h"

namespace ddprun::tasks {
namespace {

std::int64_t count_targets(const Tensor& targets) {
  const auto* target = targets.data<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < targets.numel(); ++i) count += target[i] != data::ignored_target;
  return count;
}

// Returns (..., width) as (items, width).
Variable as_rows(const Variable& x) {
  return reshape(x, {-1, x.shape().back()});
}

// A task that predicts the next token at each position: cross-entropy over the vocabulary. Its items are tokens.
class LanguageModelling : public Task {
 public:
  // cross_entropy: if empty, the usual one for a model's whole scores.
  LanguageModelling(std::int64_t vocabulary, std::int64_t context, CrossEntropy cross_entropy = {})
      : vocabulary_(vocabulary), context_(context), cross_entropy_(std::move(cross_entropy)) {}

  std::int64_t outputs() const override { return vocabulary_; }
  double items_per_sample() const override { return static_cast<double>(context_); }
  bool items_are_tokens() const override { return true; }

  double weight(const data::Batch& batch) const override {
    return static_cast<double>(count_targets(batch.on_host("target")));
  }

  WeightedLoss loss(const Forward& model, const data::Batch& batch) const override {
    // Scores of a large vocabulary take most of a device's memory: there the loss computes them in parts, unless they
    // are on another device than the samples, like those of a pipeline.
    const Device device = batch.input().device();
    const bool in_parts = !cross_entropy_ && device.type == DeviceType::cuda && batch.target().device() == device;
    const autograd::DeferredOutput output(in_parts);
    Variable result = as_rows(model(Variable(batch.input())));
    Variable output_weight = output.weight();
    if (output_weight.defined() && output_weight.device() != result.device()) {
      // A model that is divided among devices brings its result to the device of the samples.
      result = to_device(linear(to_device(result, output_weight.device()), output_weight), device);
      output_weight = Variable();
    }
    return {loss_of(result, output_weight, batch.target().reshape({-1})), weight(batch)};
  }

  std::unique_ptr<Task> with_cross_entropy(CrossEntropy cross_entropy) const override {
    return std::make_unique<LanguageModelling>(vocabulary_, context_, std::move(cross_entropy));
  }

  Evaluation finish(std::span<const double> sums) const override {
    const double loss = sums[0] / sums[1];
    Evaluation result{.loss = loss, .others = {{"perplexity", std::exp(loss)}}};
    if (vocabulary_ == 256) result.others.push_back({"bits_per_byte", loss / std::numbers::ln2});
    return result;
  }

 private:
  // weight: that of the output layer whose input the result is; if undefined, the result is scores.
  Variable loss_of(const Variable& result, const Variable& weight, const Tensor& targets) const {
    const CrossEntropyOptions options{.ignore_index = data::ignored_target};
    if (weight.defined()) return linear_cross_entropy(result, weight, targets, options);
    return cross_entropy_ ? cross_entropy_(result, targets) : cross_entropy(result, targets, options);
  }

  const std::int64_t vocabulary_;
  const std::int64_t context_;
  const CrossEntropy cross_entropy_;
};

}  // namespace

std::unique_ptr<Task> make_language_modelling(const TaskOptions& options) {
  return std::make_unique<LanguageModelling>(options.layout.vocabulary, options.layout.input_shape.at(0));
}

}  // namespace ddprun::tasks

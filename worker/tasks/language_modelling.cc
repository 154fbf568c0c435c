#include <cmath>
#include <numbers>
#include <utility>

#include "ddprun/worker/autograd/ops/loss.h"
#include "ddprun/worker/autograd/ops/shape.h"
#include "ddprun/worker/data/tokens.h"
#include "ddprun/worker/tasks/tasks.h"

namespace ddprun::tasks {
namespace {

std::int64_t count_targets(const Tensor& targets) {
  const auto* target = targets.data<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < targets.numel(); ++i) count += target[i] != data::ignored_target;
  return count;
}

Variable of_whole_scores(const Variable& scores, const Tensor& targets) {
  return cross_entropy(scores, targets, {.ignore_index = data::ignored_target});
}

// The next token at each position: cross-entropy over the vocabulary. Its items are tokens.
class LanguageModelling : public Task {
 public:
  LanguageModelling(std::int64_t vocabulary, std::int64_t context, CrossEntropy cross_entropy)
      : vocabulary_(vocabulary), context_(context), cross_entropy_(std::move(cross_entropy)) {}

  std::int64_t outputs() const override { return vocabulary_; }
  double items_per_sample() const override { return static_cast<double>(context_); }

  WeightedLoss loss(const Forward& model, const data::Batch& batch) const override {
    const Variable logits = model(Variable(batch.input()));
    const Tensor targets = batch.target().reshape({-1});
    return {cross_entropy_(reshape(logits, {-1, logits.shape().back()}), targets),
            static_cast<double>(count_targets(batch.on_host("target")))};
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
  const std::int64_t vocabulary_;
  const std::int64_t context_;
  const CrossEntropy cross_entropy_;
};

}  // namespace

std::unique_ptr<Task> make_language_modelling(const TaskOptions& options) {
  return std::make_unique<LanguageModelling>(options.layout.vocabulary, options.layout.input_shape.at(0),
                                             of_whole_scores);
}

}  // namespace ddprun::tasks

#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/loss.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/data/mixup.h"
#include "worker/tasks/tasks.h"
#include "worker/tensor/kernels.h"

namespace ddprun::tasks {
namespace {

// labels: those on the host.
std::int64_t count_correct(const Tensor& scores, const Tensor& labels) {
  const Tensor answers = kernels::argmax_rows(scores).to(Device{});
  const auto* answer = answers.data<std::int64_t>();
  const auto* label = labels.data<std::int64_t>();
  std::int64_t correct = 0;
  for (std::int64_t i = 0; i < answers.numel(); ++i) correct += answer[i] == label[i];
  return correct;
}

// A task with one label a sample: cross-entropy, for mixed samples with the shares of their classes, and the share of
// samples whose highest score is the label's.
class Classification : public Task {
 public:
  explicit Classification(std::int64_t classes) : classes_(classes) {}

  std::int64_t outputs() const override { return classes_; }

  WeightedLoss loss(const Forward& model, const data::Batch& batch) const override {
    return loss_of(model(Variable(batch.input())), batch);
  }

  std::size_t sum_count() const override { return 3; }

  void add_to(std::span<double> sums, const Forward& model, const data::Batch& batch) const override {
    const auto scores = model(Variable(batch.input()));
    const auto [loss, weight] = loss_of(scores, batch);
    sums[0] += loss.value().item() * weight;
    sums[1] += weight;
    sums[2] += static_cast<double>(count_correct(scores.value(), batch.on_host("target")));
  }

  Evaluation finish(std::span<const double> sums) const override {
    return {.loss = sums[0] / sums[1], .accuracy = sums[2] / sums[1]};
  }

 private:
  static WeightedLoss loss_of(const Variable& scores, const data::Batch& batch) {
    const auto count = static_cast<double>(batch.size());
    const Tensor* shares = batch.find(data::Mixup::class_shares);
    if (!shares) return {cross_entropy(scores, batch.target()), count};
    return {mul(sum(mul(log_softmax(scores), Variable(*shares))), -1 / count), count};
  }

  const std::int64_t classes_;
};

}  // namespace

std::unique_ptr<Task> make_classification(const TaskOptions& options) {
  return std::make_unique<Classification>(options.layout.classes);
}

}  // namespace ddprun::tasks

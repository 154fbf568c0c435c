#include "common/error.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/loss.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/tasks/tasks.h"

namespace ddprun::tasks {
namespace {

// A classification that learns from the labels and from a teacher's scores: (1 - w) cross-entropy + w T^2
// KL(softmax(teacher / T) || softmax(student / T)), Hinton, Vinyals and Dean, "Distilling the knowledge in a neural
// network" (2015). It is evaluated as a classification, without the teacher.
class Distillation : public Task {
 public:
  explicit Distillation(const TaskOptions& options)
      : labels_(make_classification(options)), options_(options.distillation) {}

  std::int64_t outputs() const override { return labels_->outputs(); }

  double weight(const data::Batch& batch) const override { return labels_->weight(batch); }

  WeightedLoss loss(const Forward& model, const data::Batch& batch) const override {
    Variable scores;
    auto [loss, weight] = labels_->loss([&](const Variable& input) { return scores = model(input); }, batch);
    const Variable divergence = kl_div(log_softmax(mul(scores, 1 / options_.temperature)), soft_targets(batch));
    const double share = options_.weight;
    return {add(mul(loss, 1 - share), mul(divergence, share * options_.temperature * options_.temperature)), weight};
  }

  std::size_t sum_count() const override { return labels_->sum_count(); }
  void add_to(std::span<double> sums, const Forward& model, const data::Batch& batch) const override {
    labels_->add_to(sums, model, batch);
  }
  Evaluation finish(std::span<const double> sums) const override { return labels_->finish(sums); }

 private:
  Tensor soft_targets(const data::Batch& batch) const {
    const NoGradScope no_grad;
    return softmax(mul(options_.teacher(Variable(batch.input())), 1 / options_.temperature)).value();
  }

  const std::unique_ptr<Task> labels_;
  const DistillationOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_distillation(const TaskOptions& options) {
  if (!options.distillation.teacher) throw Error(Errc::usage, "distillation needs a teacher (distill.teacher)");
  return std::make_unique<Distillation>(options);
}

}  // namespace ddprun::tasks

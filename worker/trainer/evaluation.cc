#include "ddprun/worker/trainer/evaluation.h"

#include <vector>

#include "ddprun/worker/autograd/ops/loss.h"
#include "ddprun/worker/data/distributed_sampler.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::trainer {
namespace {

// Restores training mode at the end of the scope, also when an exception leaves it.
class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Module& model) : model_(model) { model_.train(false); }
  ~EvaluationMode() { model_.train(true); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  nn::Module& model_;
  NoGradScope no_grad_;
};

std::int64_t count_correct(const Tensor& scores, const Tensor& labels) {
  const Tensor answers = kernels::argmax_rows(scores);
  const auto* answer = answers.data<std::int64_t>();
  const auto* label = labels.data<std::int64_t>();
  std::int64_t correct = 0;
  for (std::int64_t i = 0; i < answers.numel(); ++i) correct += answer[i] == label[i];
  return correct;
}

}  // namespace

Variable loss_of(const Variable& output, const data::Batch& batch, const data::SampleLayout& layout) {
  return layout.classes > 0 ? cross_entropy(output, batch.targets) : mse_loss(output, batch.targets);
}

Evaluation evaluate(nn::Module& model, const data::Dataset& dataset, ProcessGroup& group, EvaluationOptions options) {
  const EvaluationMode mode(model);
  const auto& layout = dataset.layout();
  data::Loader loader(dataset, data::evaluation_indices(dataset.size(), group.size(), group.rank()),
                      {.batch_size = options.batch_size, .workers = options.workers, .prefetch = 2});
  std::vector<double> sums(2);  // loss, correct answers
  while (const auto batch = loader.next()) {
    const auto output = model(Variable(batch->inputs));
    sums[0] += loss_of(output, *batch, layout).value().item() * static_cast<double>(batch->samples());
    if (layout.classes > 0) sums[1] += static_cast<double>(count_correct(output.value(), batch->targets));
  }
  group.allreduce(span_of(sums), ReduceOp::sum)->wait();
  const auto size = static_cast<double>(dataset.size());
  Evaluation result{.loss = without_nan_sign(sums[0] / size)};
  if (layout.classes > 0) result.accuracy = sums[1] / size;
  return result;
}

}  // namespace ddprun::trainer

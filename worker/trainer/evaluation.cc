#include "ddprun/worker/trainer/evaluation.h"

#include <vector>

#include "ddprun/worker/data/distributed_sampler.h"
#include "ddprun/worker/data/loader.h"

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

}  // namespace

Evaluation evaluate(nn::Module& model, const tasks::Task& task, const data::Dataset& dataset, ProcessGroup& group,
                    EvaluationOptions options) {
  const EvaluationMode mode(model);
  const tasks::Forward forward = [&](const Variable& input) { return model(input); };
  data::Loader loader(dataset, data::evaluation_indices(dataset.size(), group.size(), group.rank()),
                      {.batch_size = options.batch_size, .workers = options.workers, .prefetch = 2});
  std::vector<double> sums(task.sum_count());
  while (const auto batch = loader.next()) task.add_to(sums, forward, *batch);
  group.allreduce(span_of(sums), ReduceOp::sum)->wait();
  auto result = task.finish(sums);
  result.loss = without_nan_sign(result.loss);
  return result;
}

}  // namespace ddprun::trainer

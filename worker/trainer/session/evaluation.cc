#include "worker/trainer/session/evaluation.h"

#include <vector>

#include "common/rounding.h"
#include "worker/data/distributed_sampler.h"
#include "worker/data/loader.h"

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

// Returns the number of batches of rank 0, which has the most samples.
std::int64_t most_batches(const data::Dataset& dataset, const ProcessGroup& group, const EvaluationOptions& options) {
  return divide_up(divide_up(dataset.size(), group.size()), options.batch_size);
}

// Makes passes that do not count.
template <class AddTo>
void make_passes(std::int64_t count, const data::Dataset& dataset, std::size_t sum_count, const AddTo& add_to) {
  std::vector<double> ignored(sum_count);
  for (std::int64_t i = 0; i < count; ++i) {
    data::Loader loader(dataset, std::vector<std::int64_t>{0}, {.batch_size = 1, .workers = 0});
    add_to(ignored, loader.next().value());
  }
}

}  // namespace

Evaluation evaluate(nn::Module& model, const tasks::Task& task, const data::Dataset& dataset, ProcessGroup& group,
                    EvaluationOptions options) {
  const EvaluationMode mode(model);
  const tasks::Forward forward =
      options.forward ? options.forward : [&](const Variable& input) { return model(input); };
  data::Loader loader(dataset, data::evaluation_indices(dataset.size(), group.size(), group.rank()),
                      {.batch_size = options.batch_size, .workers = options.workers, .prefetch = 2});
  const auto add_to = [&](std::span<double> sums, const data::Batch& on_host) {
    const auto batch = on_host.to(options.device);
    options.add_to ? options.add_to(sums, batch) : task.add_to(sums, forward, batch);
  };
  std::vector<double> sums(task.sum_count());
  while (const auto batch = loader.next()) add_to(sums, *batch);
  if (options.equal_passes)
    make_passes(most_batches(dataset, group, options) - loader.batches(), dataset, task.sum_count(), add_to);
  group.allreduce(span_of(sums), ReduceOp::sum)->wait();
  if (options.parts) options.parts->allreduce(span_of(sums), ReduceOp::sum)->wait();
  auto result = task.finish(sums);
  result.loss = without_nan_sign(result.loss);
  return result;
}

}  // namespace ddprun::trainer

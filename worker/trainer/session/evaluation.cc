#include "worker/trainer/session/evaluation.h"

#include <algorithm>
#include <functional>
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

// The sums of each shard, which one rank computes.
class ShardSums {
 public:
  ShardSums(int shards, std::size_t sum_count)
      : shards_(shards), sum_count_(sum_count), values_(static_cast<std::size_t>(shards) * sum_count) {}

  int shards() const { return shards_; }
  std::span<double> of(int shard) {
    return std::span(values_).subspan(static_cast<std::size_t>(shard) * sum_count_, sum_count_);
  }
  // Collective. Adding the zeros of other ranks changes no bit, and the shards are added up in their order.
  std::vector<double> total(ProcessGroup& group) {
    group.allreduce(span_of(values_), ReduceOp::sum)->wait();
    std::vector<double> sums(sum_count_);
    for (int shard = 0; shard < shards_; ++shard) std::ranges::transform(sums, of(shard), sums.begin(), std::plus());
    return sums;
  }

 private:
  const int shards_;
  const std::size_t sum_count_;
  std::vector<double> values_;
};

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
  const auto add_to = [&](std::span<double> sums, const data::Batch& on_host) {
    const auto batch = on_host.to(options.device);
    options.add_to ? options.add_to(sums, batch) : task.add_to(sums, forward, batch);
  };
  ShardSums shard_sums(options.shards > 0 ? options.shards : group.size(), task.sum_count());
  std::int64_t batches = 0;
  for (int shard = group.rank(); shard < shard_sums.shards(); shard += group.size()) {
    data::Loader loader(dataset, data::evaluation_indices(dataset.size(), shard_sums.shards(), shard),
                        {.batch_size = options.batch_size, .workers = options.workers, .prefetch = 2});
    while (const auto batch = loader.next()) add_to(shard_sums.of(shard), *batch);
    batches += loader.batches();
  }
  if (options.equal_passes)
    make_passes(most_batches(dataset, group, options) - batches, dataset, task.sum_count(), add_to);
  auto sums = shard_sums.total(group);
  if (options.parts) options.parts->allreduce(span_of(sums), ReduceOp::sum)->wait();
  auto result = task.finish(sums);
  result.loss = without_nan_sign(result.loss);
  return result;
}

}  // namespace ddprun::trainer

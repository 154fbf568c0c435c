#include "worker/tasks/task.h"

#include "common/error.h"

namespace ddprun::tasks {

std::unique_ptr<Task> Task::with_cross_entropy(CrossEntropy) const {
  throw Error(Errc::usage, "train.task: it needs whole scores, and each rank has some of the classes");
}

void Task::add_to(std::span<double> sums, const Forward& model, const data::Batch& batch) const {
  const auto [loss, weight] = this->loss(model, batch);
  if (weight == 0) return;  // the mean of nothing is NaN
  sums[0] += loss.value().item() * weight;
  sums[1] += weight;
}

Evaluation Task::finish(std::span<const double> sums) const {
  return {.loss = sums[0] / sums[1]};
}

}  // namespace ddprun::tasks

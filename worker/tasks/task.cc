#include "ddprun/worker/tasks/task.h"

namespace ddprun::tasks {

void Task::add_to(std::span<double> sums, const Forward& model, const data::Batch& batch) const {
  const auto [loss, weight] = this->loss(model, batch);
  sums[0] += loss.value().item() * weight;
  sums[1] += weight;
}

Evaluation Task::finish(std::span<const double> sums) const {
  return {.loss = sums[0] / sums[1]};
}

}  // namespace ddprun::tasks

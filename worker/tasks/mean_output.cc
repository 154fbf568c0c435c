#include "worker/autograd/ops/reduce.h"
#include "worker/tasks/tasks.h"

namespace ddprun::tasks {
namespace {

// A task with the mean of the outputs, whatever the targets: every weight has a gradient that is easy to compute by
// hand, and the loss falls without bound. For tests of the training loop.
class MeanOutput : public Task {
 public:
  explicit MeanOutput(std::int64_t outputs) : outputs_(outputs) {}

  std::int64_t outputs() const override { return outputs_; }

  WeightedLoss loss(const Forward& model, const data::Batch& batch) const override {
    return {mean(model(Variable(batch.input()))), static_cast<double>(batch.size())};
  }

 private:
  const std::int64_t outputs_;
};

}  // namespace

std::unique_ptr<Task> make_mean_output(const TaskOptions& options) {
  return std::make_unique<MeanOutput>(options.layout.target_shape.at(0));
}

}  // namespace ddprun::tasks

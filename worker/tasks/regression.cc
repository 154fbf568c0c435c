#include "worker/autograd/ops/loss.h"
#include "worker/tasks/tasks.h"

namespace ddprun::tasks {
namespace {

// A task with numbers to predict: mean squared error.
class Regression : public Task {
 public:
  explicit Regression(std::int64_t outputs) : outputs_(outputs) {}

  std::int64_t outputs() const override { return outputs_; }

  WeightedLoss loss(const Forward& model, const data::Batch& batch) const override {
    return {mse_loss(model(Variable(batch.input())), batch.target()), static_cast<double>(batch.size())};
  }

 private:
  const std::int64_t outputs_;
};

}  // namespace

std::unique_ptr<Task> make_regression(const TaskOptions& options) {
  return std::make_unique<Regression>(options.layout.target_shape.at(0));
}

}  // namespace ddprun::tasks

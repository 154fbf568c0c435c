// A task and a model that uses an operation which no built-in model has.
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/reduce.h"
#include "worker/nn/layers.h"
#include "worker/plugin/plugin.h"

using namespace ddprun;

namespace {

class MeanAbsoluteError : public tasks::Task {
 public:
  explicit MeanAbsoluteError(const tasks::TaskOptions& options) : outputs_(numel(Shape(options.layout.target_shape))) {}
  std::int64_t outputs() const override { return outputs_; }
  tasks::WeightedLoss loss(const tasks::Forward& model, const data::Batch& batch) const override {
    const Variable difference = sub(model(Variable(batch.input())), Variable(batch.target()));
    return {mean(abs(difference)), static_cast<double>(batch.size())};
  }

 private:
  std::int64_t outputs_;
};

}  // namespace

extern "C" void ddprun_register(plugin::Registry& registry) {
  registry.tasks.add("mean_absolute_error",
                     [](const tasks::TaskOptions& options) { return std::make_unique<MeanAbsoluteError>(options); });
  registry.models.add("gated", [](const nn::ModelOptions& options, Generator& generator) {
    auto model = std::make_unique<nn::Sequential>();
    model->add(std::make_unique<nn::Linear>(numel(options.input), 32, generator))
        .add(std::make_unique<nn::GroupNorm>(4, 32))
        .add(std::make_unique<nn::Sigmoid>())
        .add(std::make_unique<nn::Linear>(32, options.outputs, generator));
    return model;
  });
  registry.models.add("refusing", [](const nn::ModelOptions&, Generator&) -> std::unique_ptr<nn::Module> {
    throw std::invalid_argument("not today");
  });
  registry.models.add("empty", [](const nn::ModelOptions&, Generator&) { return std::unique_ptr<nn::Module>(); });
}

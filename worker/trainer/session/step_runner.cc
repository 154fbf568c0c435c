#include "worker/trainer/session/step_runner.h"

#include <algorithm>

#include "common/error.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/parallel/forms/expert/expert_parallel.h"

namespace ddprun::trainer {

StepRunner::StepRunner(const TrainConfig& config, TrainState& state, ParallelForms& forms, StepValues& values)
    : config_(config), state_(state), forms_(forms), values_(values), mixtures_(mixtures_of_experts(*state.model)) {}

data::Batch StepRunner::own_part(const data::Batch& batch) const {
  if (!forms_.axes.divides_positions()) return batch.to(forms_.device(), forms_.targets_device());
  data::Batch own;
  own.samples = batch.samples;
  own.epoch = batch.epoch;
  own.add("input", forms_.axes.own_positions(batch.input()));
  own.add("target", forms_.axes.own_positions(batch.target()));
  return own;
}

double StepRunner::weight_of(const Step& step, std::size_t batch) const {
  return batch < step.counted ? forms_.task.weight(step.batches[batch]) : 0;
}

// Micro-batches and ranks add up to the gradient of the mean over the step's items: a batch weighs as many times its
// mean as it has items.
double StepRunner::share_of_loss(double weight, double items_of_step) const {
  return weight * forms_.gradient_divisor() / items_of_step;
}

// Modules with losses of their own do not run on devices, where only the device may know the scale.
double StepRunner::loss_factor(double weight, double items_of_step) const {
  return share_of_loss(weight, items_of_step) * (state_.scaler ? state_.scaler->scale() : 1);
}

Variable StepRunner::weighted(const tasks::WeightedLoss& result, double weight, double items_of_step) {
  if (weight > 0 && weight != result.weight)
    throw make_error(Errc::usage, "train.task: a batch's loss has the weight {}, and Task::weight() says {}",
                     result.weight, weight);
  if (weight > 0) values_.add_loss(result.loss.value(), weight);
  const Tensor scale = state_.scaler ? state_.scaler->on_device(result.loss.device()) : Tensor();
  if (scale.defined()) return mul(mul(result.loss, share_of_loss(weight, items_of_step)), Variable(scale));
  const double factor = loss_factor(weight, items_of_step);
  return factor == 1.0 ? result.loss : mul(result.loss, factor);
}

EvaluationOptions StepRunner::evaluation_options() const {
  return {.batch_size = config_.eval.batch_size,
          .workers = std::min(config_.data.loader.workers, 1),
          .shards = static_cast<int>(config_.train.shards),
          .equal_passes = forms_.parallelism.reduces_every_pass() || forms_.axes.needs_equal_passes(),
          .device = forms_.device()};
}

std::unique_ptr<StepRunner> make_step_runner(const TrainConfig& config, TrainState& state, ParallelForms& forms,
                                             StepValues& values) {
  const bool is_scheduled = forms.pipelined || forms.device_pipeline;
  return is_scheduled ? make_schedule_runner(config, state, forms, values)
                      : make_pass_runner(config, state, forms, values);
}

}  // namespace ddprun::trainer

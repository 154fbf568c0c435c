#include <vector>

#include "worker/trainer/session/step_runner.h"

namespace ddprun::trainer {
namespace {

// Runs both kinds of pipelines: their stages compute the micro-batches in the order of a schedule.
class PipelineRunner : public StepRunner {
 public:
  using StepRunner::StepRunner;

 protected:
  pipeline::StepFunctions functions_of(const Step& step) {
    std::vector<double> weights;
    for (std::size_t i = 0; i < step.batches.size(); ++i) weights.push_back(weight_of(step, i));
    std::vector<double> factors;
    for (const double weight : weights) factors.push_back(loss_factor(weight, step.items));
    const auto add = [this, weights, items = step.items](std::size_t batch, const tasks::WeightedLoss& loss) {
      return weighted(loss, weights[batch], items);
    };
    return step_functions(forms_.task, step.batches, {.seed = state_.run.seed, .loss_factors = factors, .add = add});
  }
};

// The runner over ranks.
class RankPipelineRunner final : public PipelineRunner {
 public:
  using PipelineRunner::PipelineRunner;

  void run(const Step& step, PhaseTimer&) override {
    auto functions = functions_of(step);
    functions.most_micro_batches = static_cast<int>(step.largest_count);
    forms_.pipelined->train(functions);
  }

  // Batches pass through the stages one after the other; the last stage's rank looks at results.
  Evaluation evaluate(const data::Dataset& samples) override {
    auto& ranks = forms_.pipelined->pipeline();
    auto options = evaluation_options();
    options.add_to = [&](std::span<double> sums, const data::Batch& batch) {
      add_to(sums, forms_.task, own_part(batch), *forms_.pipelined);
    };
    options.parts = forms_.groups.parts_of_losses;
    const auto result = trainer::evaluate(*state_.model, forms_.task, samples, forms_.groups.samples, options);
    ranks.finish();
    return result;
  }
};

// The runner over the devices of each rank.
class DevicePipelineRunner final : public PipelineRunner {
 public:
  using PipelineRunner::PipelineRunner;

  void run(const Step& step, PhaseTimer&) override {
    auto& parallelism = forms_.parallelism;
    const auto functions = functions_of(step);
    parallelism.prepare_forward();
    {
      const auto local = parallelism.hold_reduction();
      forms_.device_pipeline->train(functions);
    }
    parallelism.join_backward();
  }

  Evaluation evaluate(const data::Dataset& samples) override {
    auto options = evaluation_options();
    options.forward = [this](const Variable& input) { return forms_.device_pipeline->forward(input); };
    return trainer::evaluate(*state_.model, forms_.task, samples, forms_.groups.samples, options);
  }
};

}  // namespace

std::unique_ptr<StepRunner> make_schedule_runner(const TrainConfig& config, TrainState& state, ParallelForms& forms,
                                                 StepValues& values) {
  if (forms.pipelined) return std::make_unique<RankPipelineRunner>(config, state, forms, values);
  return std::make_unique<DevicePipelineRunner>(config, state, forms, values);
}

}  // namespace ddprun::trainer

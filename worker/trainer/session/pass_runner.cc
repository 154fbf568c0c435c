#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/nn/loss_factor_scope.h"
#include "worker/nn/random_scope.h"
#include "worker/trainer/session/step_runner.h"

namespace ddprun::trainer {
namespace {

// Makes passes through the whole model, at each rank those of its batches.
class PassRunner final : public StepRunner {
 public:
  using StepRunner::StepRunner;

  // Makes at least one pass, so that this rank takes part in the reduction; as many at all ranks if each pass reduces.
  void run(const Step& step, PhaseTimer& timer) override {
    if (forms_.shard_sums) return run_shards(step, timer);
    auto& parallelism = forms_.parallelism;
    const auto own = std::ssize(step.batches);
    const auto passes = parallelism.reduces_every_pass() ? step.largest_count : std::max<std::int64_t>(own, 1);
    for (std::int64_t i = 0; i < passes; ++i) {
      const auto local = i + 1 < passes ? parallelism.hold_reduction() : nullptr;
      if (i < own)
        forward_and_backward(step, static_cast<std::size_t>(i), timer);
      else
        parallelism.join_pass();
    }
  }

  Evaluation evaluate(const data::Dataset& samples) override {
    auto options = evaluation_options();
    const auto forward = [this](const Variable& input) { return forms_.parallelism.forward(input); };
    if (!forms_.axes.divides_positions()) {
      options.forward = forward;
    } else {
      // The ranks of a context group have the same samples; each adds the part of its positions.
      options.add_to = [&](std::span<double> sums, const data::Batch& batch) {
        forms_.task.add_to(sums, forward, own_part(batch));
      };
      options.parts = forms_.groups.parts_of_losses;
    }
    return trainer::evaluate(*state_.model, forms_.task, samples, forms_.groups.samples, options);
  }

 private:
  // Makes a pass for each of this rank's shards, a batch each, from gradients of zero on; the last one is reduced.
  void run_shards(const Step& step, PhaseTimer& timer) {
    auto& parallelism = forms_.parallelism;
    auto& sums = *forms_.shard_sums;
    if (step.batches.size() != step.shards.size())
      throw make_error(Errc::internal, "{} batches for {} shards", step.batches.size(), step.shards.size());
    if (step.shards.empty()) return parallelism.join_pass();
    for (std::size_t i = 0; i < step.shards.size(); ++i) {
      const bool is_last = i + 1 == step.shards.size();
      const auto local = is_last ? nullptr : parallelism.hold_reduction();
      sums.begin_shard(step.shards[i]);
      forward_and_backward(step, i, timer);
      if (is_last) break;
      for (const auto& [name, parameter] : state_.model->named_parameters()) parameter.grad();  // zeroed if not reached
      sums.keep_pass();
      parallelism.zero_grad();
      timer.end(&StepTimes::backward);
    }
  }

  Variable forward(const Variable& input) {
    if (!forms_.replicas) return forms_.parallelism.forward(input);
    forms_.parallelism.prepare_forward();
    return forms_.replicas->forward(input);
  }

  void forward_and_backward(const Step& step, std::size_t i, PhaseTimer& timer) {
    const data::Batch& batch = step.batches[i];
    const double weight = weight_of(step, i);
    const nn::LossFactorScope factor(loss_factor(weight, step.items));
    const nn::RandomScope random({.seed = state_.run.seed, .epoch = batch.epoch, .samples = batch.samples});
    auto saved_bytes = std::exchange(records_saved_bytes_, false)
                           ? std::make_unique<autograd::SavedBytesScope>(saved_bytes_)
                           : nullptr;
    const auto result = forms_.task.loss([this](const Variable& input) { return forward(input); }, batch);
    saved_bytes.reset();
    const Variable loss = weighted(result, weight, step.items);
    if (forms_.shard_sums) forms_.shard_sums->add_loss(weight * result.loss.value().item());
    timer.end(&StepTimes::forward);
    loss.backward();
    timer.end(&StepTimes::backward);
  }
};

}  // namespace

std::unique_ptr<StepRunner> make_pass_runner(const TrainConfig& config, TrainState& state, ParallelForms& forms,
                                             StepValues& values) {
  return std::make_unique<PassRunner>(config, state, forms, values);
}

}  // namespace ddprun::trainer

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/data/batch.h"
#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/evaluation.h"
#include "worker/trainer/session/expert_use.h"
#include "worker/trainer/session/parallel_forms.h"
#include "worker/trainer/session/phase_timer.h"
#include "worker/trainer/session/step_values.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Runs the batches of a step, and those of an evaluation: by passes through the whole model at each rank, or by the
// schedule of a pipeline.
//
// Ownership: the constructor's arguments outlive this object.
// Threads: one at a time; run() and evaluate() are collective.
class StepRunner {
 public:
  StepRunner(const TrainConfig& config, TrainState& state, ParallelForms& forms, StepValues& values);
  virtual ~StepRunner() = default;
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Returns what this rank computes of a batch of its samples, on the device where it computes.
  data::Batch own_part(const data::Batch& batch) const;

  struct Step {
    const std::vector<data::Batch>& batches;  // own_part() of this rank's
    std::size_t counted;                      // those after so many count for nothing
    std::vector<int> shards;                  // those of the batches, with train.shards
    double items;                             // those of the step, at all ranks
    std::int64_t largest_count;               // that of batches at the rank that has the most
  };
  // Computes the gradients of the step, reduced; adds its losses to the values.
  virtual void run(const Step& step, PhaseTimer& timer) = 0;
  virtual Evaluation evaluate(const data::Dataset& samples) = 0;

  // These do what Session's methods do.
  void record_saved_bytes() { records_saved_bytes_ = true; }
  const std::map<std::string, std::size_t>& saved_bytes() const { return saved_bytes_; }
  // Returns expert_use.h's numbers of the model.
  std::vector<double> take_expert_numbers() const { return trainer::take_expert_numbers(mixtures_); }

 protected:
  // Returns the weight of a batch's loss.
  double weight_of(const Step& step, std::size_t batch) const;
  // Returns by what the gradient of a loss of this weight is multiplied, the loss scale included.
  double loss_factor(double weight, double items_of_step) const;
  // Adds a loss of this weight to the values, and returns where backward() begins.
  Variable weighted(const tasks::WeightedLoss& result, double weight, double items_of_step);
  // Returns the options for an evaluation of the whole model at each rank.
  EvaluationOptions evaluation_options() const;

  const TrainConfig& config_;
  TrainState& state_;
  ParallelForms& forms_;
  StepValues& values_;
  bool records_saved_bytes_ = false;
  std::map<std::string, std::size_t> saved_bytes_;

 private:
  double share_of_loss(double weight, double items_of_step) const;

  const std::vector<nn::MixtureOfExperts*> mixtures_;  // those of the model: their use is reported
};

// Makes the runner that the forms need.
std::unique_ptr<StepRunner> make_step_runner(const TrainConfig& config, TrainState& state, ParallelForms& forms,
                                             StepValues& values);
// These make the two runners from which it chooses.
std::unique_ptr<StepRunner> make_pass_runner(const TrainConfig& config, TrainState& state, ParallelForms& forms,
                                             StepValues& values);
std::unique_ptr<StepRunner> make_schedule_runner(const TrainConfig& config, TrainState& state, ParallelForms& forms,
                                                 StepValues& values);

}  // namespace ddprun::trainer

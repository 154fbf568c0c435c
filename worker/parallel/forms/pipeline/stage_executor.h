#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/autograd/node.h"
#include "worker/parallel/forms/pipeline/channel.h"
#include "worker/parallel/forms/pipeline/schedule.h"
#include "worker/parallel/forms/pipeline/stage.h"

namespace ddprun::pipeline {

// The functions that a step calls, each on the thread of the rank whose stage it concerns.
struct StepFunctions {
  int micro_batches = 0;  // the schedule's micro-batches from here on are left out
  // Those of the data rank that has most, the same at all of them; needed where gradients are reduced in every pass.
  int most_micro_batches = 0;
  std::function<std::int64_t(int)> samples = {};            // those of a micro-batch
  std::function<Variable(int)> input = {};                  // that of the first stage
  std::function<Variable(int, const Variable&)> loss = {};  // that of the last stage's result: backward() begins at it
  // The result exists while a micro-batch is computed forward, such as nn::RandomScope; empty if there is none.
  std::function<std::shared_ptr<void>(int)> scope = {};
  // Runs an action, of which it gets the computation; called up to most_micro_batches, where computations of those that
  // this rank does not have are empty. Not set: actions run by themselves.
  std::function<void(const Action&, const std::function<void()>&)> around = {};
};

// Runs a rank's part of a schedule.
//
// Ownership: the channel outlives it.
// Threads: one at a time.
// Errors: those of operations, functions and the channel, with the rank and the action that met them. The object cannot
//   be used afterwards.
class StageExecutor {
 public:
  // stages: this rank's, ascending.
  StageExecutor(Schedule schedule, int rank, std::vector<Stage> stages, Channel& channel);

  // Runs the forward and backward passes of all micro-batches: gradients are added to those of the stages' parameters.
  void train(const StepFunctions& step);
  // Runs a forward pass of one micro-batch, without a tape. The result of loss() is not used.
  void evaluate(int micro_batch, const StepFunctions& step);

  const std::vector<Stage>& stages() const { return stages_; }

 private:
  using Key = std::pair<int, int>;  // stage, micro-batch
  // A forward pass whose backward pass is to come.
  struct Pass {
    Variable input, result;
    std::optional<autograd::DividedBackward> divided;
  };

  void run(const Action& action, const StepFunctions& step);
  void compute(const Action& action, const StepFunctions& step);
  void forward(const Action& action, const StepFunctions& step);
  void backward(const Action& action, const StepFunctions& step);
  void backward_input(const Action& action, const StepFunctions& step);
  void backward_weight(const Action& action);
  void expect(const Action& action, const StepFunctions& step);
  std::optional<std::pair<int, Message>> awaited(const Action& action, const StepFunctions& step) const;
  Tensor take(const Action& action, const StepFunctions& step);
  void hand_over(int stage, const Action& action, bool is_gradient, Tensor value, const StepFunctions& step);
  void hand_over_gradient(const Action& action, const Variable& input, const StepFunctions& step);
  const Stage& stage(int number) const;
  bool is_last(int stage) const { return stage + 1 == schedule_.stages; }

  const Schedule schedule_;
  const int rank_;
  const std::vector<Stage> stages_;
  Channel& channel_;
  std::map<Key, Pass> passes_;
  std::map<std::pair<Key, bool>, Tensor> own_messages_;  // those between stages of this rank
};

}  // namespace ddprun::pipeline

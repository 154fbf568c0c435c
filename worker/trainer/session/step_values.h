#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/tensor/late_values.h"
#include "worker/trainer/session/update_gate.h"

namespace ddprun::trainer {

// The recorded figures of a step.
struct StepFigures {
  std::int64_t step = 0;            // the run's first is 1
  double loss = 0;                  // mean over the items of all ranks
  std::optional<double> grad_norm;  // before clipping; with optim.clip_norm or optim.skip_outliers
};

// The losses and norms of steps that a device has computed and the host has still to read. On a CUDA device the host
// reads those of many steps with one wait; on the CPU each is known at once.
//
// Ownership: the gate outlives this object. Threads: one at a time.
class StepValues {
 public:
  // gate: that of the steps' updates; null: they have none.
  explicit StepValues(Device device, const UpdateGate* gate = nullptr)
      : on_host_(device.type == DeviceType::cpu), gate_(gate), late_(device) {}

  // items: those of the step, at all ranks. On the CPU a step that was not taken has failed, and is forgotten.
  void begin(std::int64_t step, double items);
  // Adds to the step that was begun last a micro-batch's loss on this rank, and its weight.
  void add_loss(const Tensor& loss, double weight);
  // Sets for that step the number in late() of the square of its gradients' norm.
  void set_square_sum(std::optional<std::size_t> value) { steps_.back().square_sum = value; }
  LateValues& late() { return late_; }

  std::size_t steps() const { return steps_.size(); }  // those that were begun since take()
  bool are_known() const { return late_.are_known(); }
  // Throws the error of a group that has cancelled the update of one of the steps.
  void wait();
  // Returns this rank's sum of losses for each of the steps. REQUIRES: are_known().
  std::vector<double> loss_sums() const;
  // Returns the figures of the steps, from the sums over all ranks, and forgets them. REQUIRES: are_known().
  std::vector<StepFigures> take(std::span<const double> loss_sums);

 private:
  struct Loss {
    std::size_t value;
    double weight;
  };
  struct Step {
    std::int64_t number;
    double items;
    std::vector<Loss> losses = {};
    std::optional<std::size_t> square_sum = {};
  };

  bool on_host_;
  const UpdateGate* gate_;
  LateValues late_;
  std::vector<Step> steps_;
};

}  // namespace ddprun::trainer

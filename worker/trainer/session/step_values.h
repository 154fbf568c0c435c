#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/tensor/late_values.h"

namespace ddprun::trainer {

// The recorded figures of a step.
struct StepFigures {
  std::int64_t step = 0;             // the run's first is 1
  double loss = 0;                   // mean over the items of all ranks
  std::optional<double> grad_norm;   // before clipping; with optim.clip_norm or optim.skip_outliers
  std::optional<double> loss_scale;  // the one with which the gradients were computed; with train.precision = fp16
  bool skipped = false;              // true if gradients were not finite or an outlier: the optimizer changed nothing
  std::int64_t skipped_steps = 0;    // those of the run up to this one
};

// A part of a session that reads numbers of the device whenever the host waits for losses.
class LateReader {
 public:
  virtual ~LateReader() = default;
  virtual void copy_to_host(LateValues& late) = 0;  // before the wait
  virtual void read(const LateValues& late) = 0;    // after it
};

// The losses and norms of steps that a device has computed and the host has still to read. On a CUDA device the host
// reads those of many steps with one wait; on the CPU each is known at once.
//
// Ownership: the readers outlive the last wait(). Threads: one at a time.
class StepValues {
 public:
  explicit StepValues(Device device) : on_host_(device.type == DeviceType::cpu), late_(device) {}

  // Adds a reader behind those before. null: none.
  void add_reader(LateReader* reader) {
    if (reader != nullptr) readers_.push_back(reader);
  }
  // items: those of the step, at all ranks. On the CPU a step that was not taken has failed, and is forgotten.
  void begin(std::int64_t step, double items);
  // Adds to the step that was begun last a micro-batch's loss on this rank, and its weight.
  void add_loss(const Tensor& loss, double weight);
  // A device has found these of a step: numbers in late().
  struct Findings {
    std::optional<std::size_t> square_sum;          // of the gradients, looked at for outliers
    std::optional<std::size_t> clipped_square_sum;  // of the gradients that are clipped to a norm
    std::optional<std::size_t> skipped, loss_scale;
  };
  // Returns the findings of the step that was begun last, to be set.
  Findings& findings() { return steps_.back().findings; }
  LateValues& late() { return late_; }

  std::size_t steps() const { return steps_.size(); }  // those that were begun since take()
  bool are_known() const { return late_.are_known(); }
  // Throws the errors of the readers.
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
    Findings findings = {};
  };
  std::optional<double> grad_norm_of(const Findings& found) const;

  bool on_host_;
  std::vector<LateReader*> readers_;
  LateValues late_;
  std::vector<Step> steps_;
};

}  // namespace ddprun::trainer

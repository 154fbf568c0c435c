#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/data/batch.h"

namespace ddprun::tasks {

// Applies the model to an input: Module::operator(), or DistributedDataParallel's while gradients are to be reduced.
using Forward = std::function<Variable(const Variable&)>;

struct WeightedLoss {
  Variable loss;      // scalar: the mean over the batch's items, such as samples or tokens
  double weight = 0;  // the number of these items
};

struct Figure {
  std::string name;
  double value = 0;
};

// Returns the mean loss of scores (batch, classes) and targets (batch); a target that is data::ignored_target counts
// for nothing.
using CrossEntropy = std::function<Variable(const Variable& scores, const Tensor& targets)>;

// The result of an evaluation, over all samples and ranks.
struct Evaluation {
  double loss = 0;                 // mean over all items
  std::optional<double> accuracy;  // 0 .. 1; none if there are no classes
  std::vector<Figure> others = {};
};

// The objective: from a model and a batch to the loss that training minimizes, and to the figures of an evaluation.
// Losses of several batches, on one rank or several, are combined by their weights.
//
// Ownership: a task has to outlive only its calls; what it refers to (a second model) is its maker's.
// Threads: one at a time.
// Errors: those of the operations, and Errc::usage for a batch without a tensor that it needs.
class Task {
 public:
  virtual ~Task() = default;

  // Returns how many numbers a model has to return for each item.
  virtual std::int64_t outputs() const = 0;
  // The items of each sample, so that the weight of a step is known before its batches are computed.
  virtual double items_per_sample() const { return 1; }
  // Returns whether the items are tokens of a text.
  virtual bool items_are_tokens() const { return false; }

  // Returns the weight of a batch's loss, that which loss() returns: the number of its items that count. It is known
  // before the loss.
  virtual double weight(const data::Batch& batch) const { return static_cast<double>(batch.size()); }
  // Calls model exactly once. REQUIRES: a batch of at least one sample.
  virtual WeightedLoss loss(const Forward& model, const data::Batch& batch) const = 0;

  // Returns this task for a model whose scores only this function understands: each rank has some of the classes
  // (tensor parallelism). The default throws Errc::usage, since the task looks at scores itself.
  virtual std::unique_ptr<Task> with_cross_entropy(CrossEntropy cross_entropy) const;

  // An evaluation adds sum_count() numbers over all batches and ranks, and turns the totals into figures. At first the
  // sums are zero. The default sums are loss times weight, and weight.
  virtual std::size_t sum_count() const { return 2; }
  virtual void add_to(std::span<double> sums, const Forward& model, const data::Batch& batch) const;
  virtual Evaluation finish(std::span<const double> sums) const;
};

}  // namespace ddprun::tasks

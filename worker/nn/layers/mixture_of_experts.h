#pragma once

#include <functional>
#include <memory>

#include "worker/nn/layers/dropout.h"
#include "worker/nn/layers/routing.h"
#include "worker/nn/module.h"
#include "worker/tensor/random.h"

namespace ddprun::nn {

struct MixtureOfExpertsOptions {
  std::int64_t width, hidden;  // features of a token, and between the two layers of an expert
  std::int64_t experts;
  std::int64_t per_token = 2;  // experts that compute a token, at most all
  // An expert takes this many times its equal share of a batch's choices; the rest are dropped. If 0, it takes all.
  double capacity_factor = 0;
  double load_balancing_loss = 0.01;  // weight of the loss that keeps experts equally busy
  double router_z_loss = 0;           // weight of the loss that keeps the router's logits small
  bool bias = true;
  double dropout = 0;                                // applied to the result
  double deviation = 0.02, result_deviation = 0.02;  // those of the initial weights, and of the second layer's
};

// The load of the experts.
struct ExpertLoad {
  ExpertCounts chosen;       // choices by expert
  std::int64_t dropped = 0;  // those that were dropped for lack of capacity
};

// Computes the experts of a layer where other processes share in it.
//
// Threads: those of the layer. run() is called once in each pass through the layer.
class ExpertExchange {
 public:
  // Computes the results of rows that are ordered by expert, counts of each.
  using Compute = std::function<Variable(const Variable& rows, const ExpertCounts& counts)>;

  struct Results {
    Variable rows;      // those of this process's rows
    ExpertCounts sums;  // of numbers, over all processes whose tokens are routed in this pass
  };

  virtual ~ExpertExchange() = default;
  // compute() is called once with the rows, from any process, of the experts that this process has. numbers: equally
  // many at each process; none outside of training.
  virtual Results run(const Variable& rows, const ExpertCounts& counts, const ExpertCounts& numbers,
                      const Compute& compute) = 0;
};

// Divides each expert among processes that have the same tokens: the first layer's outputs, and so the second one's
// inputs (tensor parallelism).
//
// Threads: those of the layer. The methods are called in each pass through the layer, differentiable.
class ExpertSlices {
 public:
  virtual ~ExpertSlices() = default;
  // Returns the layer's whole input at each process, where each has some positions; and back.
  virtual Variable whole(const Variable& input) = 0;
  virtual Variable own(const Variable& result) = 0;
  // Returns the input of the first layer's slices, and the sum of what the second layer's slices make.
  virtual Variable enter(const Variable& rows) = 0;
  virtual Variable leave(const Variable& results) = 0;
};

// One linear layer of all experts: grouped_mm(). Shapes: weight (experts, in, out), bias (experts, out).
class ExpertLinear : public Module {
 public:
  ExpertLinear(std::int64_t experts, std::int64_t in, std::int64_t out, double deviation, bool bias,
               Generator& generator);
  Variable apply(const Variable& rows, const ExpertCounts& counts) const;
  // apply() in two steps, for a weight of which each process has some inputs: the products are summed in between.
  Variable multiply(const Variable& rows, const ExpertCounts& counts) const;
  Variable add_bias(const Variable& results, const ExpertCounts& counts) const;

 private:
  Variable weight_, bias_;
};

// (..., width) -> (..., experts): logits, computed in float32 at least. Shape: weight (experts, width).
class Router : public Module {
 public:
  Router(std::int64_t width, std::int64_t experts, double deviation, Generator& generator);

 private:
  Variable forward(const Variable& tokens) override;

  Variable weight_;
};

// (..., width) -> the same. Each token is computed by the experts that a router finds most probable, two linear layers
// with gelu in between each, and the result is the mean of theirs, weighted by the probabilities (of the experts
// chosen; the probability itself with one expert a token). A choice that is dropped adds nothing.
// Fedus et al., "Switch Transformers", 2021; Jiang et al., "Mixtral of Experts", 2024.
//
// Training adds to the gradient, and not to the value, those of two losses of each pass: the number of experts times
// the sum over them of the share of choices times the mean probability (1 where experts are equally busy), and the mean
// square of the logarithm of the sum of the logits' exponentials (Zoph et al., "ST-MoE", 2022). A LossFactorScope
// multiplies them.
//
// Ownership: an exchange and slices outlive passes through this module and their tapes.
class MixtureOfExperts : public Module {
 public:
  MixtureOfExperts(const MixtureOfExpertsOptions& options, Generator& generator);

  const MixtureOfExpertsOptions& options() const { return options_; }
  // Returns the load of passes in training, of all processes that route together, since the last call.
  ExpertLoad take_load();
  // Null: this process computes all experts.
  void set_exchange(ExpertExchange* exchange) { exchange_ = exchange; }
  // Null: experts are whole.
  void set_slices(ExpertSlices* slices) { slices_ = slices; }

 private:
  Variable forward(const Variable& input) override;
  Variable mix(const Variable& input);
  Variable compute(const Variable& rows, const ExpertCounts& counts);
  ExpertExchange::Results run(const Variable& rows, const ExpertCounts& counts, const ExpertCounts& numbers);
  Variable losses(const Variable& logits, const Variable& probabilities, const ExpertCounts& chosen) const;
  void record_load(const ExpertCounts& sums);

  const MixtureOfExpertsOptions options_;
  Router& router_;
  ExpertLinear &c_fc_, &c_proj_;
  Dropout& dropout_;
  ExpertExchange* exchange_ = nullptr;
  ExpertSlices* slices_ = nullptr;
  ExpertLoad load_;
};

}  // namespace ddprun::nn

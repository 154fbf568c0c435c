#pragma once

#include "worker/nn/module.h"

// Functions without parameters, element by element except LogSoftmax: inputs of any shape, which the result has too.
namespace ddprun::nn {

class ReLU : public Module {
 private:
  Variable forward(const Variable& input) override;
};

// x times the normal distribution function of x (Hendrycks and Gimpel 2016), exactly or approximated by tanh.
class GELU : public Module {
 public:
  enum class Approximation { none, tanh };
  explicit GELU(Approximation approximation = Approximation::none) : approximation_(approximation) {}

 private:
  Variable forward(const Variable& input) override;

  Approximation approximation_;
};

class Tanh : public Module {
 private:
  Variable forward(const Variable& input) override;
};

class Sigmoid : public Module {
 private:
  Variable forward(const Variable& input) override;
};

// Computes over the last dimension.
class LogSoftmax : public Module {
 private:
  Variable forward(const Variable& input) override;
};

}  // namespace ddprun::nn

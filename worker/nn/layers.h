#pragma once

#include "ddprun/worker/autograd/ops/conv.h"
#include "ddprun/worker/nn/module.h"

// Layers, each a thin module around an operation. Initialised as PyTorch's: weights and biases uniform within
// 1 / sqrt(fan-in), which is its Kaiming-uniform with a = sqrt(5).
namespace ddprun::nn {

// (batch, in) -> (batch, out)
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias = true);
  Variable forward(const Variable& input) override;

 private:
  Variable weight_;  // (out, in)
  Variable bias_;    // (out)
};

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
};

// (batch, in, height, width) -> (batch, out, oh, ow)
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator, Conv2dOptions options = {});
  Variable forward(const Variable& input) override;

 private:
  ConvOptions options_;
  Variable weight_;  // (out, in, kernel, kernel)
  Variable bias_;    // (out)
};

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(PoolOptions options) : options_(options) {}
  Variable forward(const Variable& input) override;

 private:
  PoolOptions options_;
};

struct NormOptions {
  double momentum = 0.1;
  double eps = 1e-5;
};

// (batch, channels) or (batch, channels, ...): PyTorch's BatchNorm1d and BatchNorm2d in one.
class BatchNorm : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, NormOptions options = {});
  Variable forward(const Variable& input) override;

 private:
  NormOptions options_;
  Variable weight_, bias_;
  Tensor running_mean_, running_var_, batches_;
};

class ReLU : public Module {
 public:
  Variable forward(const Variable& input) override;
};

// In evaluation: the identity.
class Dropout : public Module {
 public:
  Dropout(double probability, Generator generator);
  Variable forward(const Variable& input) override;

 private:
  double probability_;
  Generator generator_;
};

class Flatten : public Module {
 public:
  Variable forward(const Variable& input) override;
};

// One after the other; children named as given, or "0", "1", ...
class Sequential : public Module {
 public:
  Sequential& add(const std::string& name, std::unique_ptr<Module> module);
  Sequential& add(std::unique_ptr<Module> module) { return add(std::to_string(order_.size()), std::move(module)); }
  Variable forward(const Variable& input) override;

 private:
  std::vector<Module*> order_;
};

}  // namespace ddprun::nn

#pragma once

#include "ddprun/worker/autograd/ops/conv.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

// Layers, each a thin module around an operation. Initialised as PyTorch's: weights and biases uniform within
// 1 / sqrt(fan-in), which is its Kaiming-uniform with a = sqrt(5).
namespace ddprun::nn {

// (batch, in) -> (batch, out)
class Linear : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias = true);

 private:
  Variable forward(const Variable& input) override;

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

 private:
  Variable forward(const Variable& input) override;

  ConvOptions options_;
  Variable weight_;  // (out, in, kernel, kernel)
  Variable bias_;    // (out)
};

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(PoolOptions options) : options_(options) {}

 private:
  Variable forward(const Variable& input) override;

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

 private:
  Variable forward(const Variable& input) override;

  NormOptions options_;
  Variable weight_, bias_;
  Variable running_mean_, running_var_, batches_;
};

class ReLU : public Module {
 private:
  Variable forward(const Variable& input) override;
};

// In evaluation: the identity. Random numbers are those of the samples in a RandomScope; without one they come from the
// generator, in the order of the calls.
class Dropout : public Module {
 public:
  Dropout(double probability, Generator generator);

 private:
  Variable forward(const Variable& input) override;

  double probability_;
  Generator generator_;
};

class Flatten : public Module {
 private:
  Variable forward(const Variable& input) override;
};

// One after the other; children named as given, or "0", "1", ...
class Sequential : public Module {
 public:
  Sequential& add(const std::string& name, std::unique_ptr<Module> module);
  Sequential& add(std::unique_ptr<Module> module) { return add(std::to_string(order_.size()), std::move(module)); }

 private:
  Variable forward(const Variable& input) override;

  std::vector<Module*> order_;
};

}  // namespace ddprun::nn

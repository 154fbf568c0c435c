#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/nn/models.h"

namespace ddprun::test {

// The training of a model for the comparison with PyTorch. Each row has its counterpart in scripts/make-model-losses,
// which writes the figures in model_losses.inc.
struct ModelCase {
  std::string name;  // the model's name; after a space, the particulars of this case
  nn::ModelOptions options;
  std::function<Variable(const Variable& outputs, const Tensor& targets)> loss;
  std::int64_t batch = 8;
  std::size_t steps = 20;  // number of compared steps
  double lr = 0.01;
  // Losses are compared in this type. The batch normalizations of resnet18, over few values, multiply float32's
  // rounding errors by 1e6 within 20 steps.
  DType dtype = DType::float32;
  bool numbers = false;  // targets are options.outputs numbers a sample, not labels

  std::string model() const { return name.substr(0, name.find(' ')); }
  bool tokens() const { return options.input_dtype == DType::int64; }
};

const std::vector<ModelCase>& model_cases();

// Returns the data of a step, floating-point numbers as float64.
Tensor model_inputs(const ModelCase& model_case, std::int64_t step);
Tensor model_targets(const ModelCase& model_case, std::int64_t step);

// Returns the value of a parameter or buffer of this name and shape, as float64; key is its position among the
// parameters, or 500 and its position among the buffers.
Tensor model_value(const std::string& name, const Shape& shape, std::int64_t key);

}  // namespace ddprun::test

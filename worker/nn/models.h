#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

struct ModelOptions {
  Shape input{1, 28, 28};                      // of one sample, without the batch
  std::int64_t outputs = 10;                   // classes, or values of a regression
  std::vector<std::int64_t> hidden{128, 128};  // "mlp": sizes of the hidden layers
  double dropout = 0;                          // "mlp": after each hidden layer
};

// Builds the model by name, its parameters drawn from the generator:
//   cnn     conv 5x5 to 10 channels, max-pool 2, relu, conv 5x5 to 20, max-pool 2, relu, linear to 50, relu, linear to
//   outputs;
//           input (channels, height, width). 21,840 parameters for [1, 28, 28].
//   mlp     linear and relu for each hidden size, then linear to outputs; any input, flattened
//   linear  one linear layer; any input, flattened
// Throws Errc::usage for an unknown name (naming the known ones) or an input that the model cannot take.
std::unique_ptr<Module> make_model(std::string_view name, const ModelOptions& options, Generator& generator);

std::vector<std::string_view> model_names();

}  // namespace ddprun::nn

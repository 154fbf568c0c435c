#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun::optim {

using NamedParameters = std::vector<std::pair<std::string, Variable>>;

// The options of a group of parameters.
struct ParameterGroupOptions {
  double lr_factor = 1;                // the group's learning rate is the optimizer's times this
  std::optional<double> weight_decay;  // none: that of the optimizer
};

// Parameters that are updated with the same hyper-parameters: PyTorch's param_groups. A value; the variables in it are
// handles on the model's.
struct ParameterGroup {
  NamedParameters parameters;
  ParameterGroupOptions options;
};

// Returns the gradients of those parameters that have one, in their order.
std::vector<Tensor> gradients_of(const NamedParameters& parameters);

// Returns whether the parameter of this path is a bias. Its dimensions do not tell: the biases of several experts are
// one parameter of two dimensions.
bool is_bias(std::string_view name);

// Returns two groups: parameters of at least two dimensions (weights of linear layers and convolutions, embeddings),
// with the optimizer's weight decay, and the others (biases, and weights of norms) with none. A group without
// parameters is left out.
std::vector<ParameterGroup> split_one_dimensional(const NamedParameters& parameters);

}  // namespace ddprun::optim

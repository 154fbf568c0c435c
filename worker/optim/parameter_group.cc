#include "worker/optim/parameter_group.h"

namespace ddprun::optim {

bool is_bias(std::string_view name) {
  return name == "bias" || name.ends_with(".bias");
}

std::vector<Tensor> gradients_of(const NamedParameters& parameters) {
  std::vector<Tensor> gradients;
  for (const auto& [name, parameter] : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradients;
}

std::vector<ParameterGroup> split_one_dimensional(const NamedParameters& parameters) {
  ParameterGroup matrices, others{.parameters = {}, .options = {.weight_decay = 0}};
  for (const auto& parameter : parameters)
    (parameter.second.shape().size() > 1 && !is_bias(parameter.first) ? matrices : others)
        .parameters.push_back(parameter);
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&matrices, &others})
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  return groups;
}

}  // namespace ddprun::optim

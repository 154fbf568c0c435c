#include "ddprun/worker/optim/parameter_group.h"

namespace ddprun::optim {

std::vector<ParameterGroup> split_one_dimensional(const NamedParameters& parameters) {
  ParameterGroup matrices, others{.parameters = {}, .options = {.weight_decay = 0}};
  for (const auto& parameter : parameters)
    (parameter.second.shape().size() > 1 ? matrices : others).parameters.push_back(parameter);
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&matrices, &others})
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  return groups;
}

}  // namespace ddprun::optim

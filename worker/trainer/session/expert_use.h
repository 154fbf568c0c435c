#pragma once

#include <optional>
#include <vector>

#include "worker/nn/layers/mixture_of_experts.h"

namespace ddprun::trainer {

// The load of a model's experts, over the tokens that are routed together.
struct ExpertUse {
  double load = 1;     // that of the busiest one, over the mean of its layer: the largest of the layers
  double dropped = 0;  // share of the tokens' choices, over all layers
};

// Returns the use in the passes since the last call; none for a model without experts.
std::optional<ExpertUse> take_expert_use(const std::vector<nn::MixtureOfExperts*>& layers);

}  // namespace ddprun::trainer

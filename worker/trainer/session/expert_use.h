#pragma once

#include <optional>
#include <span>
#include <vector>

#include "worker/nn/layers/mixture_of_experts.h"

namespace ddprun::trainer {

// The load of a model's experts, over the tokens that are routed together.
struct ExpertUse {
  double load = 1;     // that of the busiest one, over the mean of its layer: the largest of the layers
  double dropped = 0;  // share of the tokens' choices, over all layers
};

// Returns the use in the passes since the last call, a few numbers for each layer, those of a layer without a pass
// zero: they add up over ranks that have different layers.
std::vector<double> take_expert_numbers(const std::vector<nn::MixtureOfExperts*>& layers);
// Returns the use that such numbers are of; none for a model without experts.
std::optional<ExpertUse> expert_use_of(std::span<const double> numbers);

}  // namespace ddprun::trainer

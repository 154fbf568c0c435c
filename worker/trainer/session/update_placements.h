#pragma once

#include "worker/nn/module.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/parallel/sharding/sharded_sum.h"
#include "worker/trainer/session/parallel_forms.h"

namespace ddprun::trainer {

// Returns the axes on which updates may be sharded, the innermost first: those of placements_of_updates().
std::vector<sharding::AxisGroup> axes_of_updates(const ParallelForms& forms);

// Returns the placement of what the ranks update of each parameter, and so of what an optimizer keeps of it, and that
// of buffers, on a mesh of all ranks: that of the forms, where "replicate" and "shard" replace "data" and, if experts
// are not sharded, the other axes whose ranks have gradients of their own. Pure: it looks only at the forms and at the
// shapes of parameters.
sharding::ParameterPlacements placements_of_updates(const ParallelForms& forms, const nn::Module& model);

}  // namespace ddprun::trainer

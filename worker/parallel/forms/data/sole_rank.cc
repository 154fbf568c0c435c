#include "worker/parallel/forms/data/sole_rank.h"

#include "common/error.h"

namespace ddprun {

SoleRank::SoleRank(nn::Module& model, ProcessGroup& group) : model_(model), group_(group) {
  if (group.size() > 1)
    throw make_error(Errc::usage, "the gradients of a model on several CUDA devices are not averaged over {} ranks",
                     group.size());
}

void SoleRank::visit_parameters(const Visitor& visit) {
  for (const auto& [name, parameter] : model_.named_parameters()) visit(name, parameter.value());
}

}  // namespace ddprun

#include "ddprun/worker/parallel/state_division.h"

namespace ddprun {

// At rank 0 both are the same memory.
void Replicas::scatter(const optim::NamedTensors&, const optim::NamedTensors& own) const {
  for (const auto& [name, tensor] : own) {
    Tensor target = tensor;  // a handle on the same elements
    group_.broadcast({target.raw(), static_cast<std::size_t>(target.numel()), target.dtype()}, 0, {.blocking = true});
  }
}

}  // namespace ddprun

#include "ddprun/worker/parallel/state_division.h"

#include "ddprun/worker/parallel/group_tensors.h"

namespace ddprun {

// At rank 0 both are the same memory.
void Replicas::scatter(const optim::NamedTensors&, const optim::NamedTensors& own) const {
  if (group_.size() == 1) return;  // whose tensors may be on several devices
  for (const auto& [name, tensor] : own) {
    Tensor target = tensor;  // a handle on the same elements
    group_.broadcast(span_of_tensor(target), 0, {.blocking = true, .after = compute_stream(target.device())});
  }
}

}  // namespace ddprun

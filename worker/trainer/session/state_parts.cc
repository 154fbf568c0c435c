#include "worker/trainer/session/state_parts.h"

#include <algorithm>

namespace ddprun::trainer {

bool StateParts::are_divided() const {
  const auto is_divided = [](const sharding::PlacedTensor& tensor) {
    return tensor.local_elements(0) < tensor.spec().elements();
  };
  return std::ranges::any_of(model.tensors(), is_divided) || std::ranges::any_of(optimizer.tensors(), is_divided) ||
         std::ranges::any_of(averages.tensors(), is_divided);
}

}  // namespace ddprun::trainer

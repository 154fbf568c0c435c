#include "worker/checkpoint/tensor_source.h"

#include <algorithm>

namespace ddprun::checkpoint {

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto& all = tensors();
  const auto found = std::ranges::find(all, name, &TensorInfo::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace ddprun::checkpoint

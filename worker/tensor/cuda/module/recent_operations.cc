#include "worker/tensor/cuda/module/recent_operations.h"

#include <algorithm>

namespace ddprun::cuda {

std::string RecentOperations::text() const {
  const std::size_t count = count_;
  std::string text;
  for (std::size_t i = count - std::min(count, names_.size()); i < count; ++i) {
    const std::string_view* const name = names_[i % names_.size()];
    if (name != nullptr) text.append(text.empty() ? "" : ", ").append(*name);
  }
  return text;
}

}  // namespace ddprun::cuda

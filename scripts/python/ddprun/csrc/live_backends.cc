#include "live_backends.h"

#include <algorithm>

#include "backend.h"

namespace ddprun_torch {

void LiveBackends::add(const c10::intrusive_ptr<Backend>& backend) {
  const std::lock_guard lock(mutex_);
  backends_.erase(
      std::remove_if(backends_.begin(), backends_.end(), [](const WeakBackend& each) { return each.expired(); }),
      backends_.end());
  backends_.emplace_back(backend);
}

void LiveBackends::close() {
  std::vector<WeakBackend> backends;
  {
    const std::lock_guard lock(mutex_);
    backends.swap(backends_);
  }
  for (const auto& each : backends)
    if (const auto backend = each.lock()) backend->close();
}

}  // namespace ddprun_torch

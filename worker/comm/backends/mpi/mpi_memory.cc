#include "worker/comm/backends/mpi/mpi_memory.h"

#include <functional>
#include <iterator>

namespace ddprun::comm {

RegisteredBuffer MpiMemory::allocate(std::size_t bytes) {
  const auto whole = std::make_shared<RegisteredBuffer>(plain_buffer(bytes));
  Shared memory(whole, whole->data());
  const std::lock_guard lock(mutex_);
  std::erase_if(regions_, [](const auto& entry) { return entry.second.memory.expired(); });
  regions_.insert_or_assign(memory.get(), Region{memory, bytes});
  return {std::move(memory), bytes};
}

MpiMemory::Shared MpiMemory::find(const void* data, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto after = regions_.upper_bound(begin);
  if (after == regions_.begin()) return nullptr;
  const auto& [start, region] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(begin - start);
  if (offset > region.bytes || bytes > region.bytes - offset) return nullptr;
  return region.memory.lock();
}

}  // namespace ddprun::comm

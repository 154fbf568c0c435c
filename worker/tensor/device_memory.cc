#include "worker/tensor/device_memory.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/byte_text.h"
#include "worker/tensor/cuda/cuda_device.h"

namespace ddprun {
namespace {

// Subtracts with 0 as the least result, since others change the numbers meanwhile.
std::size_t rest(std::size_t whole, std::size_t part) {
  return whole - std::min(whole, part);
}

std::size_t sum(const MemoryByOwner& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

std::string message(Device device, std::size_t wanted, MemoryOwner wanted_for, const DeviceMemoryUse& use) {
  const std::string held = describe(use);
  return fmt::format("{} is out of memory: {} are wanted for {}, {} of {} are free{}{}", to_string(device),
                     byte_text(wanted), name_of(wanted_for), byte_text(use.free), byte_text(use.total),
                     held.empty() ? "" : "; held by ", held);
}

}  // namespace

DeviceMemoryUse device_memory_use(Device device) {
  const auto& cuda = cuda::CudaDevice::of(device);
  cuda::DeviceMemoryFacts facts{};
  cuda::check(cuda.api().memory_facts(cuda.context(), &facts));
  const OwnedMemory owned = memory_by_owner(device);
  DeviceMemoryUse use{.workspaces = rest(facts.allocated, sum(owned.tensors)),
                      .kept = rest(facts.reserved, facts.allocated),
                      .others = rest(facts.total - facts.free, facts.reserved + sum(owned.claims)),
                      .free = facts.free,
                      .total = facts.total};
  for (std::size_t i = 0; i < memory_owners; ++i) use.owners[i] = owned.tensors[i] + owned.claims[i];
  return use;
}

std::string describe(const DeviceMemoryUse& use) {
  std::vector<std::pair<std::size_t, std::string_view>> parts{
      {use.workspaces, "workspaces of operations"},
      {use.kept, "kept for the next allocation"},
      {use.others, "other processes and CUDA's own"},
  };
  for (std::size_t i = 0; i < memory_owners; ++i)
    parts.emplace_back(use.owners[i], name_of(static_cast<MemoryOwner>(i)));
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [bytes, what] : parts)
    if (bytes > 0) texts.push_back(fmt::format("{} {}", what, byte_text(bytes)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

OutOfDeviceMemory::OutOfDeviceMemory(Device device, std::size_t wanted)
    : OutOfDeviceMemory(device, wanted, memory_owner(), device_memory_use(device)) {}

OutOfDeviceMemory::OutOfDeviceMemory(Device device, std::size_t wanted, MemoryOwner wanted_for,
                                     const DeviceMemoryUse& use)
    : Error(Errc::io, message(device, wanted, wanted_for, use)),
      device_(device),
      wanted_(wanted),
      wanted_for_(wanted_for),
      use_(use) {}

}  // namespace ddprun

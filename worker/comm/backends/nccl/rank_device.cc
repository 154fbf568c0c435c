#include "worker/comm/backends/nccl/rank_device.h"

#include <algorithm>

#include <fmt/core.h>

namespace ddprun::comm {

std::string encode(const RankDevice& device) {
  return fmt::format("{}\n{}\n{}\n{}", device.shrinkable_group, device.host_evidence, device.host_name, device.bus_id);
}

RankDevice decode_rank_device(std::string_view text) {
  const auto next_line = [&] {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return std::string(line);
  };
  RankDevice device;
  for (auto* const field : {&device.shrinkable_group, &device.host_evidence, &device.host_name, &device.bus_id})
    *field = next_line();
  return device;
}

HostMap hosts_of(const RankDevices& devices) {
  std::vector<std::string> evidence;
  for (const auto& each : devices) evidence.push_back(each.host_evidence);
  return HostMap(evidence);
}

bool all_can_shrink(const RankDevices& devices) {
  const auto& group = devices.front().shrinkable_group;
  return !group.empty() &&
         std::all_of(devices.begin(), devices.end(), [&](const auto& each) { return each.shrinkable_group == group; });
}

std::string describe_shared_device(const RankDevices& devices) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto& own = devices[rank];
    for (std::size_t other = 0; other < rank; ++other) {
      if (devices[other].host_evidence != own.host_evidence || devices[other].bus_id != own.bus_id) continue;
      return fmt::format("ranks {} and {} have the same device, {} of host {}", other, rank, own.bus_id, own.host_name);
    }
  }
  return "";
}

}  // namespace ddprun::comm

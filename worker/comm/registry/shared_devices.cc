#include "worker/comm/registry/shared_devices.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

namespace ddprun::comm {
namespace {

constexpr std::size_t most_ranks = 8;  // the number of ranks listed for a device
constexpr std::size_t most_devices = 4;

using Ranks = std::vector<std::size_t>;

// Returns the ranks of each device, by the lowest.
std::vector<Ranks> ranks_by_device(const RankLocations& locations) {
  std::vector<Ranks> devices;
  for (std::size_t rank = 0; rank < locations.size(); ++rank) {
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const Ranks& ranks) {
      const auto& first = locations[ranks.front()];
      return first.host == locations[rank].host && first.device == locations[rank].device;
    });
    if (found != devices.end()) {
      found->push_back(rank);
    } else {
      devices.push_back({rank});
    }
  }
  return devices;
}

// Returns "0, 1 and 2".
std::string list(const Ranks& ranks) {
  if (ranks.size() > most_ranks)
    return fmt::format("{} and {} more", fmt::join(ranks.begin(), ranks.begin() + most_ranks, ", "),
                       ranks.size() - most_ranks);
  return fmt::format("{} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

}  // namespace

std::string describe_shared_devices(const RankLocations& locations) {
  auto devices = ranks_by_device(locations);
  std::erase_if(devices, [](const Ranks& ranks) { return ranks.size() == 1; });
  std::string text;
  for (std::size_t i = 0; i < std::min(devices.size(), most_devices); ++i) {
    const auto& place = locations[devices[i].front()];
    text += fmt::format("{}ranks {} {}the device {} of host {}", i == 0 ? "" : ", ", list(devices[i]),
                        i == 0 ? "share " : "", place.device, place.host_name);
  }
  if (devices.size() > most_devices)
    text += fmt::format(", and others share {} more devices", devices.size() - most_devices);
  return text;
}

}  // namespace ddprun::comm

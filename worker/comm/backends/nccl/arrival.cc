#include "ddprun/worker/comm/backends/nccl/arrival.h"

#include <algorithm>

#include <fmt/core.h>

namespace ddprun::comm {

std::string encode(const Arrival& arrival) {
  return fmt::format("{}\n{}\n{}\n{}", arrival.former, arrival.evidence, arrival.host, arrival.bus_id);
}

Arrival decode_arrival(std::string_view text) {
  const auto next_line = [&] {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return std::string(line);
  };
  Arrival arrival;
  for (auto* const field : {&arrival.former, &arrival.evidence, &arrival.host, &arrival.bus_id}) *field = next_line();
  return arrival;
}

bool all_can_shrink(const Arrivals& arrivals) {
  const auto& first = arrivals.front().former;
  return !first.empty() &&
         std::all_of(arrivals.begin(), arrivals.end(), [&](const Arrival& each) { return each.former == first; });
}

std::string name_shared_device(const Arrivals& arrivals) {
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank) {
    const auto& [former, evidence, host, bus_id] = arrivals[rank];
    for (std::size_t before = 0; before < rank; ++before) {
      if (arrivals[before].evidence != evidence || arrivals[before].bus_id != bus_id) continue;
      return fmt::format("ranks {} and {} have the same device, {} of host {}", before, rank, bus_id, host);
    }
  }
  return "";
}

}  // namespace ddprun::comm

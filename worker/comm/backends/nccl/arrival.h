#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::comm {

// What a rank tells the others of itself when an nccl group comes together. Values and their text.
struct Arrival {
  std::string former;    // of the group whose communicator it can shrink: the prefix; empty: of none
  std::string evidence;  // of its host (host_evidence.h)
  std::string host;      // by name
  std::string bus_id;    // of its device
  friend bool operator==(const Arrival&, const Arrival&) = default;
};
using Arrivals = std::vector<Arrival>;  // by rank

std::string encode(const Arrival& arrival);
Arrival decode_arrival(std::string_view text);

// Ranks shrink their communicator together or not at all.
bool all_can_shrink(const Arrivals& arrivals);
// "ranks 0 and 3 have the same device, 0000:01:00.0 of host b": the first that do; empty where each has its own.
std::string name_shared_device(const Arrivals& arrivals);

}  // namespace ddprun::comm

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/bootstrap/host_map.h"

namespace ddprun::comm {

// The device of a rank, and what decides how the rank joins its communicator. The ranks of an nccl group exchange these
// through the store when it forms. A value and its text.
struct RankDevice {
  std::string shrinkable_group;  // prefix of the group whose communicator this rank can shrink, or empty
  std::string host_evidence;     // identifies its host (host_evidence.h)
  std::string host_name;
  std::string bus_id;
  friend bool operator==(const RankDevice&, const RankDevice&) = default;
};
using RankDevices = std::vector<RankDevice>;  // by rank

std::string encode(const RankDevice& device);
RankDevice decode_rank_device(std::string_view text);

// Returns on which host each rank is.
HostMap hosts_of(const RankDevices& devices);
// Returns whether all ranks can shrink the communicator of one group: either all shrink it or none.
bool all_can_shrink(const RankDevices& devices);
// Returns "ranks 0 and 3 have the same device, 0000:01:00.0 of host b" for the first two that do, or an empty text.
std::string describe_shared_device(const RankDevices& devices);

}  // namespace ddprun::comm

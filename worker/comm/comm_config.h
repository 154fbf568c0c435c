#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "common/deadline.h"

namespace ddprun {

// The settings of a process group, whatever its back end.
//
// Ownership: a value. Threads: none of its own. Errors: make_group() and init_process_group() throw Errc::usage for a
// value that is out of range, and Errc::mismatch at all ranks, at once, when they differ in freeze_bound, heartbeat
// (also by its default), checked or staging_bytes. Units: as each field says.
struct CommConfig {
  // The bound for one operation, and for forming the group; 1 ms or more.
  std::chrono::milliseconds timeout{300'000};
  // The address at which peers reach this process: an IP address, or names of network interfaces separated by commas,
  // of which the first that exists, is up and has an address is used. If it is empty or a loopback address, loopback is
  // used if all ranks share a network, otherwise the address that routes to the others.
  std::string local_address;
  // Identifies this host: ranks with the same text share memory. If it is empty, the kernel identifies the host.
  std::string host;
  // The time that a rank may show no sign of life (stopped, starved, cut off) before the group takes it for lost, even
  // if no operation waits for it; zero means no limit. A rank that dies or leaves is noticed at once in any case.
  std::chrono::milliseconds freeze_bound{5'000};
  // The interval of a rank's signs of life; if it is not set, it is derived from timeout and freeze_bound.
  std::optional<std::chrono::milliseconds> heartbeat;
  // True if ranks compare their calls before every collective over Gloo and every send over NCCL, at the cost of a
  // message; without it ranks that call different operations learn of it after a few heartbeats, and at once where
  // comparing is free. If it is not set, they compare in debug builds only.
  std::optional<bool> checked;
  // The number of collectives that a back end over a network executes at once, so that a small one need not wait for a
  // large one before it. Ranks may differ.
  int concurrency = 4;
  // Bytes of each of a rank's two staging buffers, through which large operations pass between ranks that share memory:
  // a multiple of 4096, at most 1 GiB, at least 64 for each rank of a host. By default they are so large that
  // lines leave the cores' nearest caches before they are written again.
  std::size_t staging_bytes = std::size_t{1024} * 1024;
  // The name of this rank in messages about a failure, besides its number and its process, such as its place in a mesh:
  // one line, or empty. Ranks may differ.
  std::string label;
  // The CUDA device of this rank, whose memory operations take besides the host's: by NCCL, or staged through memory of
  // the host. All ranks name one or none does. Without one, operations take only memory of the host.
  std::optional<int> device;
  friend bool operator==(const CommConfig&, const CommConfig&) = default;
};

namespace comm {
// Throws Errc::usage naming a value that is out of range.
void check(const CommConfig& config);
// Returns whether ranks compare their calls before an operation although that costs a message.
bool compares_calls(const CommConfig& config);
// The interval between heartbeats.
std::chrono::milliseconds heartbeat_of(const CommConfig& config);

// Longer timeouts count as this one: a clock cannot add milliseconds::max().
inline constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365);
// The deadline of a timeout that a user set.
inline Deadline deadline_after(std::chrono::milliseconds timeout) {
  return Deadline::in(std::min(timeout, longest_timeout));
}
}  // namespace comm

}  // namespace ddprun

#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/store/store.h"

namespace ddprun {

namespace comm {
struct PreviousGroup;
}

// What a process group is made of, whatever its back end. All ranks have the same size, freeze_bound, checked and
// staging_bytes, and the same heartbeat: it depends on the timeout where that is below 10 s. Ranks that differ in one
// are told at once.
struct GroupOptions {
  int rank = 0;
  int size = 1;
  // A new client of the job's store, with a connection of its own. Called from the thread that makes the group, or a
  // subgroup of it, and, of an auto group, from that of the first collective on memory of a device.
  std::function<std::shared_ptr<Store>()> connect_store;
  std::string prefix = "group/0/";             // of the group's keys in the store: unique to this group
  std::chrono::milliseconds timeout{300'000};  // of one operation, and of coming together; 1 ms or more
  // Where peers reach this process: an IP address, or names of network interfaces with commas between them, of which
  // the first counts that there is, up and with an address. Empty, or loopback: that, where all ranks share a network,
  // else what routes to the others.
  std::string local_address;
  // What tells this host from others: ranks that say the same share memory. Empty: found by evidence.
  std::string host;
  std::optional<int> store_host;  // the rank whose process serves the store, if one does
  bool beside_store = false;      // the store is on this process's host: ranks of others are cut off with it from there
  // How long a rank may give no sign of life (stopped, starved, cut off) before the group takes it for lost, whether or
  // not anybody waits for it; zero: any time. A rank that dies or leaves is known at once, whatever the bound.
  std::chrono::milliseconds freeze_bound{5'000};
  std::optional<std::chrono::milliseconds> heartbeat;  // how often ranks show that they live; none: fits the above
  // Ranks that call different operations learn of it within some heartbeats, and at once where comparing the calls
  // costs nothing. True: at once with every collective over Gloo and every send over NCCL too, by a message more. None:
  // in debug builds.
  std::optional<bool> checked;
  // Collectives that a back end over a network has under way at once, at most: a small one then need not wait for a
  // large one before it, and the latency of one passes beside the next. Ranks may differ.
  int lanes = 4;
  // Of one of a rank's two pieces of staging memory, through which large operations go where ranks share memory: a
  // multiple of 4096, to 1 GiB, and 64 or more for each rank of a host. By default both stay in a second-level cache.
  std::size_t staging_bytes = std::size_t{256} * 1024;
  // Once requested, from whatever thread, the group is aborted, also while it comes together.
  std::stop_token stop{};
  std::stop_token give_up{};  // the same only while it comes together; later of no account
  std::shared_ptr<comm::PreviousGroup>
      previous_group{};  // of the group before, where an ElasticGroup forms this one after it
};

namespace comm {
// Throws Errc::usage naming a number that no group can have.
void check(const GroupOptions& options);
// Whether a back end compares the calls of all ranks before each operation, though that costs a message.
bool compares_calls(const GroupOptions& options);
// The interval between heartbeats.
std::chrono::milliseconds heartbeat_of(const GroupOptions& options);

// Longer timeouts count as this one: a clock cannot add milliseconds::max().
inline constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365);
// The deadline of a timeout that a user set.
inline Deadline deadline_after(std::chrono::milliseconds timeout) {
  return Deadline::in(std::min(timeout, longest_timeout));
}
}  // namespace comm

}  // namespace ddprun

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "worker/comm/backends/nccl/call_plan.h"
#include "worker/comm/bootstrap/host_map.h"

namespace ddprun::comm {

// Calculates the bytes that a rank sends to other hosts in NCCL, which does not tell, as if the ranks were a ring, of
// which each rank of a host has an equal share of the link to the next host. On one host there are none. Immutable.
class RingTraffic {
 public:
  RingTraffic(HostMap hosts, int rank) : hosts_(std::move(hosts)), rank_(rank) {}

  std::uint64_t of(const PlannedCall& call) const;
  std::uint64_t of_message(int destination, std::size_t bytes) const;

 private:
  std::uint64_t share(std::uint64_t bytes_of_link) const;

  const HostMap hosts_;
  const int rank_;
};

}  // namespace ddprun::comm

#pragma once

#include <cstddef>
#include <vector>

#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/operations/checked_call.h"
#include "ddprun/worker/comm/operations/operation.h"

namespace ddprun::comm {

// One call of NCCL. kind: allreduce, reduce, broadcast, allgather, reduce_scatter, barrier, send or recv.
struct PlannedCall {
  OpKind kind = OpKind::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // as NCCL counts: of one rank's part where ranks have parts
  DType dtype = DType::uint8;
  int peer = -1;  // root, destination or source
  friend bool operator==(const PlannedCall&, const PlannedCall&) = default;
};

// How NCCL carries a collective out: a copy within the device, then calls that make one group of NCCL's.
struct CallPlan {
  ConstSpan own_input;  // this rank's own part, where it has to be moved; else empty
  void* own_output = nullptr;
  std::vector<PlannedCall> calls;
};

// Parts that are only moved go as sends and receives, unequal parts that are reduced as a reduce to each rank, several
// spans as a call for each. An all_to_all is not in place.
CallPlan plan_calls(const Collective& collective, RankInfo rank_info);

}  // namespace ddprun::comm

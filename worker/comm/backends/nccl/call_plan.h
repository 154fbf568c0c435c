#pragma once

#include <cstddef>
#include <vector>

#include "worker/comm/execution/transport.h"
#include "worker/comm/operations/checked_call.h"
#include "worker/comm/operations/operation.h"

namespace ddprun::comm {

// One call to NCCL. kind: allreduce, reduce, broadcast, allgather, reduce_scatter, barrier, send or recv.
struct PlannedCall {
  OpKind kind = OpKind::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // as NCCL counts: the elements of one part where each rank has a part
  DType dtype = DType::uint8;
  int peer = -1;  // root, destination or source
  friend bool operator==(const PlannedCall&, const PlannedCall&) = default;
};

// The execution of a collective by NCCL: a copy within the device, then calls that form one ncclGroup.
struct CallPlan {
  ConstSpan own_input;  // this rank's own part, if it has to be copied; else empty
  void* own_output = nullptr;
  std::vector<PlannedCall> calls;
};

// Operations that only move parts become sends and receives, a reduction in unequal parts a reduce to each rank, a
// coalesced operation a call for each span. REQUIRES: an all_to_all is not in place.
CallPlan plan_calls(const Collective& collective, RankInfo rank_info);

}  // namespace ddprun::comm

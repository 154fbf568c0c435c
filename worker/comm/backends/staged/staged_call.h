#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ddprun/worker/comm/operations/call.h"

namespace ddprun::comm {

// Memory of the device and its place in the staging memory.
struct StagedSpan {
  void* device = nullptr;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  friend bool operator==(const StagedSpan&, const StagedSpan&) = default;
};

// A call on memory of a device as a call on memory of the host. A plan: no memory is accessed.
struct StagedCall {
  Call call;                              // on the staging memory
  std::vector<StagedSpan> read, written;  // what the host call reads, and what it writes
};

std::size_t staging_bytes(const Call& call);
// What was in place stays so. REQUIRES: staging has staging_bytes(call) bytes.
StagedCall plan_staged_call(const Call& call, RankInfo rank_info, std::byte* staging);

// Whether each element of the result depends on the same element of the inputs alone, so that the operation can be
// executed in chunks.
bool is_elementwise(const Call& call);

}  // namespace ddprun::comm

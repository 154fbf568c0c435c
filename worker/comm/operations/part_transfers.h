#pragma once

#include <vector>

#include "worker/comm/operations/call.h"

namespace ddprun::comm {

// The parts that a rank sends to and receives from each other rank in an operation that only moves parts, and its own
// part, which it copies unless it is in place. Empty parts are not sent.
struct PartTransfers {
  struct Send {
    ConstSpan part;
    int destination;
  };
  struct Receive {
    Span part;
    int source;
  };

  std::vector<Send> sends;  // starting with the next rank, so that the ranks do not all start with the same one
  std::vector<Receive> receives;
  ConstSpan own_input;
  Span own_output;

  bool copies_own() const { return own_input.count > 0 && own_input.data != own_output.data; }
};

// Returns those of an allgather, gather, scatter or all_to_all, in equal or unequal parts.
PartTransfers part_transfers(const Call& call, RankInfo rank_info);

}  // namespace ddprun::comm

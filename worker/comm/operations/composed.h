#pragma once

#include <functional>
#include <memory>

#include "worker/comm/operations/call.h"
#include "worker/comm/reduce/reduce_kernels.h"

// Compose collectives of simpler operations, for all back ends. They block, and throw what the functions passed to them
// throw.
namespace ddprun::comm {

using ExecuteOne = std::function<void(const Collective&)>;
using StartTransfer = std::function<std::unique_ptr<Transfer>(const Operation&, Span memory)>;

// Returns whether a transport executes the operation in place.
inline bool in_place(const Operation& operation, RankInfo rank_info) {
  return operation.kind == OpKind::allreduce || (operation.kind == OpKind::reduce && operation.peer == rank_info.rank);
}

// Returns whether compose() would pass the collective on unchanged: it is not coalesced, not a premultiplied sum, and
// an allreduce or a reduce at its root is in place. Inline, as every small collective asks this.
inline bool is_elementary(const Collective& collective, RankInfo rank_info) {
  const auto& operation = collective.operation;
  return !operation.coalesced() && !(operation.reduces() && needs_preparation(operation.op)) &&
         !(in_place(operation, rank_info) && collective.input.data != collective.output.data);
}

// Executes a collective as elementary ones.
void compose(const Collective& collective, RankInfo rank_info, const ExecuteOne& execute_one);

// Executes a coalesced collective as a few on one span each: adjacent small spans of one type are packed together,
// large ones are not copied. Every rank packs the same.
void execute_coalesced(const Collective& collective, RankInfo rank_info, const ExecuteOne& execute_one);

// Executes allgather, gather, scatter and all_to_all, in equal or unequal parts, as sends and receives between all
// pairs of ranks that exchange data, all at once. The transfers must make progress without being waited for.
void compose_of_transfers(const Collective& collective, RankInfo rank_info, const StartTransfer& start);

}  // namespace ddprun::comm

#include "ddprun/worker/comm/operations/composed.h"

#include <cstring>
#include <memory>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/operations/coalesced.h"
#include "ddprun/worker/comm/operations/part_transfers.h"
#include "ddprun/worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// Whether the output takes the place of the input.
bool in_place(const Operation& operation, RankInfo rank_info) {
  return operation.kind == OpKind::allreduce || (operation.kind == OpKind::reduce && operation.peer == rank_info.rank);
}

// The factor goes into the output where that takes the place of the input, else into a copy: inputs are only read.
// Values whose prepared type is another travel, and are added up, in that one.
void execute_premultiplied(Collective collective, RankInfo rank_info, const ExecuteOne& execute_one) {
  auto& operation = collective.operation;
  const auto output = collective.output;
  const auto type = prepared_type(operation.dtype);
  const bool widened = type != operation.dtype, placed = in_place(operation, rank_info);
  std::vector<std::byte> values, result;
  if (widened || !placed) values.resize(collective.input.count * size_of(type));
  if (widened && !placed) result.resize(output.count * size_of(type));
  void* const prepared = values.empty() ? output.data : values.data();
  prepare_reduction(operation.factor, collective.input, prepared);

  operation.op = ReduceOp::sum;
  operation.dtype = type;
  collective.input = {prepared, collective.input.count, type};
  if (widened) collective.output = {placed ? prepared : result.data(), output.count, type};
  execute_one(collective);
  if (widened) finish_prepared(collective.output.data, output);
}

void execute_in_place(Collective collective, const ExecuteOne& execute_one) {
  std::memcpy(collective.output.data, collective.input.data, collective.input.bytes());
  collective.input = collective.output;
  execute_one(collective);
}

// A tag, below those of callers, for one collective: its signature, and so much of its number that those under way at
// once differ.
int tag_of(const Collective& collective) {
  const auto number = static_cast<int>(collective.sequence & 0x7fff);
  return -1 - (number << 16 | int{signature(collective.operation)});
}

// All at once.
void execute_transfers(const Collective& collective, const PartTransfers& transfers,
                       const StartTransfer& start_transfer) {
  const int tag = tag_of(collective);
  std::vector<std::unique_ptr<Transfer>> under_way;
  const auto start = [&](OpKind kind, Span part, int peer) {
    const Operation operation{.kind = kind, .dtype = part.dtype, .count = part.count, .peer = peer, .tag = tag};
    under_way.push_back(start_transfer(operation, part));
  };
  for (const auto& [part, source] : transfers.receives) start(OpKind::recv, part, source);
  for (const auto& [part, destination] : transfers.sends) {
    start(OpKind::send, {const_cast<void*>(part.data), part.count, part.dtype}, destination);
  }
  if (transfers.copies_own()) {
    std::memcpy(transfers.own_output.data, transfers.own_input.data, transfers.own_input.bytes());
  }
  for (auto& each : under_way) each->wait(collective.timeout);
}

}  // namespace

bool is_elementary(const Collective& collective, RankInfo rank_info) {
  const auto& operation = collective.operation;
  return !operation.coalesced() && !(operation.reduces() && needs_preparation(operation.op)) &&
         !(in_place(operation, rank_info) && collective.input.data != collective.output.data);
}

void compose(const Collective& collective, RankInfo rank_info, const ExecuteOne& execute_one) {
  const auto& operation = collective.operation;
  if (is_elementary(collective, rank_info)) {
    execute_one(collective);
  } else if (operation.coalesced()) {
    execute_coalesced(collective, rank_info, [&](const Collective& one) { compose(one, rank_info, execute_one); });
  } else if (operation.reduces() && needs_preparation(operation.op)) {
    execute_premultiplied(collective, rank_info, execute_one);
  } else {
    execute_in_place(collective, execute_one);
  }
}

void compose_of_transfers(const Collective& collective, RankInfo rank_info, const StartTransfer& start) {
  Collective apart = collective;
  std::vector<std::byte> copy;
  if (collective.operation.kind == OpKind::all_to_all && collective.input.data == collective.output.data) {
    const auto* input = static_cast<const std::byte*>(collective.input.data);
    copy.assign(input, input + collective.input.bytes());
    apart.input.data = copy.data();
  }
  execute_transfers(collective, part_transfers(apart, rank_info), start);
}

}  // namespace ddprun::comm

#include "worker/comm/operations/composed.h"

#include <cstring>
#include <memory>
#include <vector>

#include "common/error.h"
#include "worker/comm/operations/part_transfers.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// The multiplied values go into the output if the operation is in place, else into a copy, as inputs are only read.
// 16-bit floats are sent and added as float32.
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

// Returns a negative tag, which users cannot pass, for the messages of one collective: its signature and the lower bits
// of its sequence number, so that concurrent collectives differ.
int tag_of(const Collective& collective) {
  const auto number = static_cast<int>(collective.sequence & 0x7fff);
  return -1 - (number << 16 | int{signature(collective.operation)});
}

void execute_transfers(const Collective& collective, const PartTransfers& transfers,
                       const StartTransfer& start_transfer) {
  const int tag = tag_of(collective);
  std::vector<std::unique_ptr<Transfer>> started;
  const auto start = [&](OpKind kind, Span part, int peer) {
    const Operation operation{.kind = kind, .dtype = part.dtype, .count = part.count, .peer = peer, .tag = tag};
    started.push_back(start_transfer(operation, part));
  };
  for (const auto& [part, source] : transfers.receives) start(OpKind::recv, part, source);
  for (const auto& [part, destination] : transfers.sends) {
    start(OpKind::send, {const_cast<void*>(part.data), part.count, part.dtype}, destination);
  }
  if (transfers.copies_own()) {
    std::memcpy(transfers.own_output.data, transfers.own_input.data, transfers.own_input.bytes());
  }
  for (auto& each : started) each->wait(collective.timeout);
}

}  // namespace

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

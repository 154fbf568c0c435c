#include "ddprun/worker/comm/call/composed.h"

#include <cstring>
#include <memory>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/call/coalesced.h"
#include "ddprun/worker/comm/call/part_transfers.h"
#include "ddprun/worker/comm/kernels/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// Whether the output takes the place of the input.
bool in_place(const Operation& operation, Seat seat) {
  return operation.kind == OpKind::allreduce || (operation.kind == OpKind::reduce && operation.peer == seat.rank);
}

// The factor goes into the output where that takes the place of the input, else into a copy: inputs are only read.
// Values whose prepared type is another travel, and are added up, in that one.
void carry_out_premultiplied(Transport& transport, Collective collective, Seat seat) {
  auto& operation = collective.operation;
  const auto output = collective.output;
  const auto type = prepared_type(operation.dtype);
  const bool widened = type != operation.dtype, placed = in_place(operation, seat);
  std::vector<std::byte> values, result;
  if (widened || !placed) values.resize(collective.input.count * size_of(type));
  if (widened && !placed) result.resize(output.count * size_of(type));
  void* const prepared = values.empty() ? output.data : values.data();
  prepare_reduction(operation.factor, collective.input, prepared);

  operation.op = ReduceOp::sum;
  operation.dtype = type;
  collective.input = {prepared, collective.input.count, type};
  if (widened) collective.output = {placed ? prepared : result.data(), output.count, type};
  transport.carry_out(collective);
  if (widened) finish_prepared(collective.output.data, output);
}

void carry_out_in_place(Transport& transport, Collective collective) {
  std::memcpy(collective.output.data, collective.input.data, collective.input.bytes());
  collective.input = collective.output;
  transport.carry_out(collective);
}

// A tag, below those of callers, for one collective: its signature, and so much of its number that those under way at
// once differ.
int tag_of(const Collective& collective) {
  const auto number = static_cast<int>(collective.sequence & 0x7fff);
  return -1 - (number << 16 | int{signature(collective.operation)});
}

// All at once.
void carry_out_transfers(Transport& transport, const Collective& collective, const PartTransfers& transfers) {
  const int tag = tag_of(collective);
  std::vector<std::unique_ptr<Transfer>> under_way;
  const auto start = [&](OpKind kind, Span part, int peer) {
    const Operation operation{.kind = kind, .dtype = part.dtype, .count = part.count, .peer = peer, .tag = tag};
    under_way.push_back(transport.start(operation, part));
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

void carry_out_on(Transport& transport, const Collective& collective, Seat seat) {
  const auto& operation = collective.operation;
  if (carried_out_as_it_is(transport, collective, seat)) {
    transport.carry_out(collective);
  } else if (operation.coalesced()) {
    carry_out_coalesced(collective, seat, [&](const Collective& one) { carry_out_on(transport, one, seat); });
  } else if (operation.reduces() && needs_preparation(operation.op)) {
    carry_out_premultiplied(transport, collective, seat);
  } else {
    carry_out_in_place(transport, collective);
  }
}

bool carried_out_as_it_is(const Transport& transport, const Collective& collective, Seat seat) {
  if (transport.takes_every_call()) return true;
  const auto& operation = collective.operation;
  return !operation.coalesced() && !(operation.reduces() && needs_preparation(operation.op)) &&
         !(in_place(operation, seat) && collective.input.data != collective.output.data);
}

void carry_out_by_transfers(Transport& transport, const Collective& collective, Seat seat) {
  Collective apart = collective;
  std::vector<std::byte> copy;
  if (collective.operation.kind == OpKind::all_to_all && collective.input.data == collective.output.data) {
    const auto* input = static_cast<const std::byte*>(collective.input.data);
    copy.assign(input, input + collective.input.bytes());
    apart.input.data = copy.data();
  }
  carry_out_transfers(transport, collective, part_transfers(apart, seat));
}

}  // namespace ddprun::comm

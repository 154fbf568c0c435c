#include "ddprun/worker/comm/call/composed.h"

#include <cstring>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/call/coalesced.h"
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

// The transfers of one collective.
class Transfers {
 public:
  Transfers(Transport& transport, const Collective& collective)
      : transport_(transport), collective_(collective), tag_(tag_of(collective)) {}

  void receive(Span part, int source) {
    if (part.count > 0) start(OpKind::recv, part, source);
  }
  void send(ConstSpan part, int destination) {
    if (part.count > 0) start(OpKind::send, {const_cast<void*>(part.data), part.count, part.dtype}, destination);
  }
  void finish() {
    for (auto& transfer : under_way_) transfer->wait(collective_.timeout);
  }

 private:
  void start(OpKind kind, Span part, int peer) {
    const Operation operation{.kind = kind, .dtype = part.dtype, .count = part.count, .peer = peer, .tag = tag_};
    under_way_.push_back(transport_.start(operation, part));
  }

  Transport& transport_;
  const Collective& collective_;
  const int tag_;
  std::vector<std::unique_ptr<Transfer>> under_way_;
};

void copy_part(ConstSpan from, Span to) {
  if (from.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

// The others, beginning with the next one: so no rank is everybody's first.
template <class Body>
void for_each_other(Seat seat, Body body) {
  for (int step = 1; step < seat.size; ++step) body((seat.rank + step) % seat.size);
}

void allgather(Transfers& transfers, const Collective& collective, Seat seat) {
  for_each_other(seat, [&](int r) { transfers.receive(collective.output_part(r), r); });
  for_each_other(seat, [&](int r) { transfers.send(collective.input, r); });
  copy_part(collective.input, collective.output_part(seat.rank));
}

void gather(Transfers& transfers, const Collective& collective, Seat seat) {
  const int root = collective.operation.peer;
  if (seat.rank != root) return transfers.send(collective.input, root);
  for_each_other(seat, [&](int r) { transfers.receive(collective.output_part(r), r); });
  copy_part(collective.input, collective.output_part(root));
}

void scatter(Transfers& transfers, const Collective& collective, Seat seat) {
  const int root = collective.operation.peer;
  if (seat.rank != root) return transfers.receive(collective.output, root);
  for_each_other(seat, [&](int r) { transfers.send(collective.input_part(r), r); });
  copy_part(collective.input_part(root), collective.output);
}

void all_to_all(Transfers& transfers, const Collective& collective, Seat seat) {
  for_each_other(seat, [&](int r) { transfers.receive(collective.output_part(r), r); });
  for_each_other(seat, [&](int r) { transfers.send(collective.input_part(r), r); });
  copy_part(collective.input_part(seat.rank), collective.output_part(seat.rank));
}

}  // namespace

void carry_out_on(Transport& transport, const Collective& collective, Seat seat) {
  const auto& operation = collective.operation;
  if (operation.coalesced()) {
    carry_out_coalesced(collective, seat, [&](const Collective& one) { carry_out_on(transport, one, seat); });
  } else if (operation.reduces() && needs_preparation(operation.op)) {
    carry_out_premultiplied(transport, collective, seat);
  } else if (in_place(operation, seat) && collective.input.data != collective.output.data) {
    carry_out_in_place(transport, collective);
  } else {
    transport.carry_out(collective);
  }
}

bool carried_out_as_it_is(const Collective& collective, Seat seat) {
  const auto& operation = collective.operation;
  return !operation.coalesced() && !(operation.reduces() && needs_preparation(operation.op)) &&
         !(in_place(operation, seat) && collective.input.data != collective.output.data);
}

void carry_out_by_transfers(Transport& transport, const Collective& collective, Seat seat) {
  Transfers transfers(transport, collective);
  std::vector<std::byte> copy;
  switch (collective.operation.kind) {
    case OpKind::allgather:
      allgather(transfers, collective, seat);
      break;
    case OpKind::gather:
      gather(transfers, collective, seat);
      break;
    case OpKind::scatter:
      scatter(transfers, collective, seat);
      break;
    case OpKind::all_to_all: {
      Collective apart = collective;
      if (collective.input.data == collective.output.data) {
        const auto* input = static_cast<const std::byte*>(collective.input.data);
        copy.assign(input, input + collective.input.bytes());
        apart.input.data = copy.data();
      }
      all_to_all(transfers, apart, seat);
      break;
    }
    default:
      throw make_error(Errc::internal, "{} is not made of transfers", describe(collective.operation));
  }
  transfers.finish();
}

}  // namespace ddprun::comm

#include "ddprun/worker/comm/shm/shm_collectives.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// Up to here every rank reads all inputs and reduces them itself: one synchronisation instead of three.
constexpr std::size_t at_once_bytes = 16 * 1024;
constexpr std::size_t line = 64;

std::size_t chunks_of(std::size_t count, std::size_t chunk) {
  return (count + chunk - 1) / chunk;
}

const std::byte* part(ConstSpan span, std::size_t element) {
  return static_cast<const std::byte*>(span.data) + element * size_of(span.dtype);
}
std::byte* part(Span span, std::size_t element) {
  return static_cast<std::byte*>(span.data) + element * size_of(span.dtype);
}

}  // namespace

void ShmCollectives::carry_out(const Collective& collective) {
  phases_.enter(collective);
  switch (collective.operation.kind) {
    case OpKind::allreduce:
      return allreduce(collective);
    case OpKind::reduce:
      return reduce(collective);
    case OpKind::broadcast:
      return broadcast(collective);
    case OpKind::allgather:
      return allgather(collective);
    case OpKind::reduce_scatter:
      return reduce_scatter(collective);
    case OpKind::barrier:
      return barrier();
    default:
      throw make_error(Errc::internal, "{} is for ShmExchanges", describe(collective.operation));
  }
}

void ShmCollectives::allreduce(const Collective& collective) {
  if (collective.output.bytes() <= std::min(at_once_bytes, board_.slot_bytes())) {
    allreduce_at_once(collective);
  } else {
    allreduce_in_slices(collective);
  }
}

void ShmCollectives::allreduce_at_once(const Collective& collective) {
  const auto& buffer = collective.output;
  phases_.begin();
  const auto phase = phases_.current();
  std::memcpy(board_.slot(rank_, phase), buffer.data, buffer.bytes());
  phases_.end();
  phases_.await_all();
  std::vector<const void*> inputs;
  for (int r = 0; r < board_.ranks(); ++r) inputs.push_back(board_.slot(r, phase));
  reduce_all(collective.operation.op, buffer.dtype, buffer.data, inputs, buffer.count);
  finish_reduction(collective.operation.op, buffer, board_.ranks());
}

// Of each chunk every rank reduces one slice. Stage 0 hands the other slices' inputs to their owners, 1 reduces the own
// slice and hands it to all, 2 takes the others'. In a slot a rank's slice has a place that no chunk's size moves:
// while others still take the own slice of one chunk, the inputs of a later one are written beside it.
void ShmCollectives::allreduce_in_slices(const Collective& collective) {
  const auto& buffer = collective.output;
  const auto element = size_of(buffer.dtype);
  const auto chunk = static_cast<std::size_t>(board_.ranks()) * (place_bytes() / element);
  phases_.pipeline(chunks_of(buffer.count, chunk), 3, [&](std::size_t stage, std::size_t number, std::uint32_t phase) {
    const auto first = number * chunk;
    const auto count = std::min(chunk, buffer.count - first);
    const auto slice_of = [&](int r) {
      const auto slice = slice_within(count, element, r);
      return Span{part(buffer, first + slice.begin), slice.count(), buffer.dtype};
    };
    if (stage == 0) {
      for_each_other([&](int r) { std::memcpy(place(rank_, r, phase), slice_of(r).data, slice_of(r).bytes()); });
    } else if (stage == 1) {
      const auto own = slice_of(rank_);
      reduce_own(collective.operation.op, own.data, own, phase);
      std::memcpy(place(rank_, rank_, phase), own.data, own.bytes());
    } else {
      for_each_other([&](int r) { std::memcpy(slice_of(r).data, place(r, r, phase), slice_of(r).bytes()); });
    }
  });
}

void ShmCollectives::reduce(const Collective& collective) {
  const auto element = size_of(collective.operation.dtype);
  const auto chunk = board_.slot_bytes() / element;
  const auto count = collective.operation.count;
  const int root = collective.operation.peer;
  phases_.pipeline(chunks_of(count, chunk), 2, [&](std::size_t stage, std::size_t number, std::uint32_t phase) {
    const auto first = number * chunk;
    const auto elements = std::min(chunk, count - first);
    const auto* own = part(collective.input, first);
    if (stage == 0 && rank_ != root) std::memcpy(board_.slot(rank_, phase), own, elements * element);
    if (stage == 0 || rank_ != root) return;
    std::vector<const void*> inputs;
    for (int r = 0; r < board_.ranks(); ++r) inputs.push_back(r == rank_ ? own : board_.slot(r, phase));
    const Span result{part(collective.output, first), elements, collective.operation.dtype};
    reduce_all(collective.operation.op, result.dtype, result.data, inputs, elements);
    finish_reduction(collective.operation.op, result, board_.ranks());
  });
}

void ShmCollectives::broadcast(const Collective& collective) {
  const auto& buffer = collective.output;
  const auto element = size_of(buffer.dtype);
  const auto chunk = board_.slot_bytes() / element;
  const int root = collective.operation.peer;
  phases_.pipeline(chunks_of(buffer.count, chunk), 2, [&](std::size_t stage, std::size_t number, std::uint32_t phase) {
    const auto first = number * chunk;
    const auto bytes = std::min(chunk, buffer.count - first) * element;
    const auto slot = board_.slot(root, phase);
    if (stage == 0 && rank_ == root) std::memcpy(slot, part(buffer, first), bytes);
    if (stage == 1 && rank_ != root) std::memcpy(part(buffer, first), slot, bytes);
  });
}

void ShmCollectives::allgather(const Collective& collective) {
  const auto& input = collective.input;
  const auto element = size_of(input.dtype);
  const auto chunk = board_.slot_bytes() / element;
  phases_.pipeline(chunks_of(input.count, chunk), 2, [&](std::size_t stage, std::size_t number, std::uint32_t phase) {
    const auto first = number * chunk;
    const auto bytes = std::min(chunk, input.count - first) * element;
    const auto block = [&](int r) {
      return part(collective.output, static_cast<std::size_t>(r) * input.count + first);
    };
    if (stage == 0) {
      std::memcpy(board_.slot(rank_, phase), part(input, first), bytes);
      if (block(rank_) != part(input, first)) std::memcpy(block(rank_), part(input, first), bytes);
      return;
    }
    for_each_other([&](int r) { std::memcpy(block(r), board_.slot(r, phase), bytes); });
  });
}

void ShmCollectives::reduce_scatter(const Collective& collective) {
  const auto& output = collective.output;
  const auto element = size_of(output.dtype);
  const auto chunk = place_bytes() / element;
  phases_.pipeline(chunks_of(output.count, chunk), 2, [&](std::size_t stage, std::size_t number, std::uint32_t phase) {
    const auto first = number * chunk;
    const auto count = std::min(chunk, output.count - first);
    const auto input = [&](int r) {
      return part(collective.input, static_cast<std::size_t>(r) * output.count + first);
    };
    if (stage == 0) {
      for_each_other([&](int r) { std::memcpy(place(rank_, r, phase), input(r), count * element); });
    } else {
      reduce_own(collective.operation.op, input(rank_), {part(output, first), count, output.dtype}, phase);
    }
  });
}

// Every rank's slot has a place for each rank: whole cache lines, so that no two ranks write the same one.
std::size_t ShmCollectives::place_bytes() const {
  return board_.slot_bytes() / static_cast<std::size_t>(board_.ranks()) / line * line;
}

std::byte* ShmCollectives::place(int owner, int r, std::uint32_t phase) const {
  return board_.slot(owner, phase) + static_cast<std::size_t>(r) * place_bytes();
}

// result := op over this rank's input and what the others have put into this rank's places, in the order of ranks.
void ShmCollectives::reduce_own(ReduceOp op, const void* own_input, Span result, std::uint32_t phase) const {
  std::vector<const void*> inputs;
  for (int r = 0; r < board_.ranks(); ++r) inputs.push_back(r == rank_ ? own_input : place(r, rank_, phase));
  reduce_all(op, result.dtype, result.data, inputs, result.count);
  finish_reduction(op, result, board_.ranks());
}

template <class Body>
void ShmCollectives::for_each_other(Body body) const {
  for (int r = 0; r < board_.ranks(); ++r) {
    if (r != rank_) body(r);
  }
}

void ShmCollectives::barrier() {
  phases_.begin();
  phases_.end();
  phases_.await_all();
}

// A rank's share of count elements: whole cache lines but for the last, none where there are too few.
ShmCollectives::Range ShmCollectives::slice_within(std::size_t count, std::size_t element, int rank) const {
  const auto ranks = static_cast<std::size_t>(board_.ranks());
  const auto lines = (count * element + line - 1) / line;
  const auto share = (lines + ranks - 1) / ranks * line / element;
  const auto begin = std::min(count, static_cast<std::size_t>(rank) * share);
  return {begin, std::min(count, begin + share)};
}

}  // namespace ddprun::comm

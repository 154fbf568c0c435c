#include "ddprun/worker/comm/backends/shm/shm_exchanges.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t line = 64;

// Elements [first, first + length) of a part, or as many of them as it has.
template <class AnySpan>
AnySpan piece(AnySpan part, std::size_t first, std::size_t length) {
  if (first >= part.count) return {nullptr, 0, part.dtype};
  using Byte = std::conditional_t<std::is_same_v<AnySpan, Span>, std::byte, const std::byte>;
  return {static_cast<Byte*>(part.data) + first * size_of(part.dtype), std::min(length, part.count - first),
          part.dtype};
}

void put(ConstSpan from, std::byte* slot) {
  if (from.count > 0) std::memcpy(slot, from.data, from.bytes());
}
void take(Span to, const std::byte* slot) {
  if (to.count > 0) std::memcpy(to.data, slot, to.bytes());
}
void copy(ConstSpan from, Span to) {
  if (from.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

std::size_t chunks_of_buffer(std::size_t count, std::size_t length) {
  return (count + length - 1) / length;
}

}  // namespace

bool ShmExchanges::takes(const Operation& operation) {
  return operation.unequal() || operation.kind == OpKind::gather || operation.kind == OpKind::scatter ||
         operation.kind == OpKind::all_to_all;
}

void ShmExchanges::execute(const Collective& collective) {
  phases_.enter(Deadline::in(collective.timeout));
  switch (collective.operation.kind) {
    case OpKind::allgather:
    case OpKind::gather:
      return gather(collective);
    case OpKind::reduce_scatter:
      return reduce_scatter(collective);
    case OpKind::scatter:
      return scatter(collective);
    case OpKind::all_to_all:
      return all_to_all(collective);
    default:
      throw make_error(Errc::internal, "{} is for ShmCollectives", describe(collective.operation));
  }
}

// Every rank puts a piece of its part into its slot; the root, or everybody, takes the others'.
void ShmExchanges::gather(const Collective& collective) {
  const auto length = board_.slot_bytes() / size_of(collective.operation.dtype);
  const bool takes = collective.operation.kind == OpKind::allgather || collective.operation.peer == rank_;
  const bool gives = collective.operation.kind == OpKind::allgather || collective.operation.peer != rank_;
  if (takes) copy(collective.input, collective.output_part(rank_));
  phases_.pipeline(chunks_of_buffer(collective.largest_part(), length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    if (stage == 0) {
      if (gives) put(piece(collective.input, first, length), board_.slot(rank_, phase));
    } else if (takes) {
      for_each_other([&](int r) { take(piece(collective.output_part(r), first, length), board_.slot(r, phase)); });
    }
  });
}

// As gather, the other way: a place in the root's slot for each rank.
void ShmExchanges::scatter(const Collective& collective) {
  const auto length = place_bytes() / size_of(collective.operation.dtype);
  const int root = collective.operation.peer;
  if (rank_ == root) copy(collective.input_part(rank_), collective.output);
  phases_.pipeline(chunks_of_buffer(collective.largest_part(), length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    if (stage == 0 && rank_ == root) {
      for_each_other([&](int r) { put(piece(collective.input_part(r), first, length), place(root, r, phase)); });
    } else if (stage == 1 && rank_ != root) {
      take(piece(collective.output, first, length), place(root, rank_, phase));
    }
  });
}

void ShmExchanges::reduce_scatter(const Collective& collective) {
  const auto length = place_bytes() / size_of(collective.operation.dtype);
  phases_.pipeline(chunks_of_buffer(collective.largest_part(), length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    if (stage == 0) {
      for_each_other([&](int r) { put(piece(collective.input_part(r), first, length), place(rank_, r, phase)); });
      return;
    }
    const auto own = piece(collective.input_part(rank_), first, length);
    const auto result = piece(collective.output, first, length);
    if (result.count == 0) return;
    std::vector<const void*> inputs;
    for (int r = 0; r < board_.ranks(); ++r) inputs.push_back(r == rank_ ? own.data : place(r, rank_, phase));
    void* const output = result.data;
    reduce_all(collective.operation.op, result.dtype, {&output, 1}, inputs, result.count);
  });
}

// In place too: a piece of the own parts is handed over before the others' takes its room.
void ShmExchanges::all_to_all(const Collective& collective) {
  const auto length = place_bytes() / size_of(collective.operation.dtype);
  const auto largest = collective.operation.unequal() ? agree_on_parts(collective) : collective.operation.count;
  copy(collective.input_part(rank_), collective.output_part(rank_));
  phases_.pipeline(chunks_of_buffer(largest, length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    for_each_other([&](int r) {
      if (stage == 0) {
        put(piece(collective.input_part(r), first, length), place(rank_, r, phase));
      } else {
        take(piece(collective.output_part(r), first, length), place(r, rank_, phase));
      }
    });
  });
}

// The ranks tell each other what they send to whom. Returns the largest part of all.
std::size_t ShmExchanges::agree_on_parts(const Collective& collective) {
  const auto ranks = static_cast<std::size_t>(board_.ranks());
  phases_.begin();
  const auto phase = phases_.current();
  std::memcpy(board_.slot(rank_, phase), collective.layout->input_parts->counts().data(), ranks * sizeof(std::size_t));
  phases_.end();
  phases_.await_all();
  std::size_t largest = 0;
  std::vector<std::size_t> sent(ranks);
  for (int r = 0; r < board_.ranks(); ++r) {
    std::memcpy(sent.data(), board_.slot(r, phase), ranks * sizeof(std::size_t));
    largest = std::max(largest, *std::max_element(sent.begin(), sent.end()));
    const auto expected = collective.layout->output_parts->count(r);
    if (sent[static_cast<std::size_t>(rank_)] == expected) continue;
    throw make_error(Errc::mismatch, "in {}, rank {} sends rank {} {} elements, and that expects {}",
                     describe(collective.operation), r, rank_, sent[static_cast<std::size_t>(rank_)], expected);
  }
  return largest;
}

// Every rank's slot has a place for each rank: whole cache lines, so that no two ranks write the same one.
std::size_t ShmExchanges::place_bytes() const {
  return board_.slot_bytes() / static_cast<std::size_t>(board_.ranks()) / line * line;
}

std::byte* ShmExchanges::place(int owner, int r, std::uint32_t phase) const {
  return board_.slot(owner, phase) + static_cast<std::size_t>(r) * place_bytes();
}

template <class Body>
void ShmExchanges::for_each_other(Body body) const {
  for (int r = 0; r < board_.ranks(); ++r) {
    if (r != rank_) body(r);
  }
}

}  // namespace ddprun::comm

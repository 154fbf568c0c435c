#include "worker/comm/backends/shm/staged_exchanges.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

// Returns elements [first, first + length) of a part, or as many of them as it has.
template <class AnySpan>
AnySpan chunk_of(AnySpan part, std::size_t first, std::size_t length) {
  if (first >= part.count) return {nullptr, 0, part.dtype};
  using Byte = std::conditional_t<std::is_same_v<AnySpan, Span>, std::byte, const std::byte>;
  return {static_cast<Byte*>(part.data) + first * size_of(part.dtype), std::min(length, part.count - first),
          part.dtype};
}

void read_from(const std::byte* slot, Span to) {
  if (to.count > 0) StagingArea::read(to.data, slot, to.bytes());
}
void copy(ConstSpan from, Span to) {
  if (from.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace

bool StagedExchanges::handles(const Operation& operation) {
  return operation.unequal() || operation.kind == OpKind::gather || operation.kind == OpKind::scatter ||
         operation.kind == OpKind::all_to_all;
}

void StagedExchanges::execute(const Collective& collective) {
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
      throw make_error(Errc::internal, "{} is for StagedCollectives", describe(collective.operation));
  }
}

// Every rank writes a chunk of its part to its slot; the root, or every rank, reads those of the others.
void StagedExchanges::gather(const Collective& collective) {
  const auto length = elements_of_chunk(collective);
  const bool to_all = collective.operation.kind == OpKind::allgather;
  const bool receives = to_all || collective.operation.peer == rank_;
  const bool sends = to_all || collective.operation.peer != rank_;
  if (receives) copy(collective.input, collective.output_part(rank_));
  phases_.pipeline(divide_up(collective.largest_part(), length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    if (stage == 0) {
      if (sends) write(area_.slot(rank_, phase), chunk_of(collective.input, first, length));
    } else if (receives) {
      for_each_peer(
          [&](int r) { read_from(area_.slot(r, phase), chunk_of(collective.output_part(r), first, length)); });
    }
  });
}

// The root writes a chunk of each rank's part to that rank's section of its slot.
void StagedExchanges::scatter(const Collective& collective) {
  const auto length = elements_of_chunk(collective);
  const int root = collective.operation.peer;
  if (rank_ == root) copy(collective.input_part(rank_), collective.output);
  phases_.pipeline(divide_up(collective.largest_part(), length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    if (stage == 0 && rank_ == root) {
      for_each_peer(
          [&](int r) { write(area_.section(root, r, phase), chunk_of(collective.input_part(r), first, length)); });
    } else if (stage == 1 && rank_ != root) {
      read_from(area_.section(root, rank_, phase), chunk_of(collective.output, first, length));
    }
  });
}

void StagedExchanges::reduce_scatter(const Collective& collective) {
  const auto length = elements_of_chunk(collective);
  phases_.pipeline(divide_up(collective.largest_part(), length), 2, [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    if (stage == 0) {
      for_each_peer(
          [&](int r) { write(area_.section(rank_, r, phase), chunk_of(collective.input_part(r), first, length)); });
      return;
    }
    const auto own = chunk_of(collective.input_part(rank_), first, length);
    const auto result = chunk_of(collective.output, first, length);
    if (result.count == 0) return;
    std::vector<const void*> inputs;
    for (int r = 0; r < layout_.ranks(); ++r) inputs.push_back(r == rank_ ? own.data : area_.section(r, rank_, phase));
    void* const output = result.data;
    reduce_all(collective.operation.op, result.dtype, {&output, 1}, inputs, result.count);
  });
}

// Works in place too: a chunk of the input is written to the slot before the chunk of the output replaces it.
void StagedExchanges::all_to_all(const Collective& collective) {
  const auto length = elements_of_chunk(collective);
  const auto largest = collective.operation.unequal() ? compare_parts(collective) : collective.operation.count;
  const auto exchange = [&](auto stage, auto number, auto phase) {
    const auto first = number * length;
    for_each_peer([&](int r) {
      if (stage == 0) {
        write(area_.section(rank_, r, phase), chunk_of(collective.input_part(r), first, length));
      } else {
        read_from(area_.section(r, rank_, phase), chunk_of(collective.output_part(r), first, length));
      }
    });
  };
  phases_.pipeline(divide_up(largest, length), 2, exchange, [&](std::size_t number) {
    copy(chunk_of(collective.input_part(rank_), number * length, length),
         chunk_of(collective.output_part(rank_), number * length, length));
  });
}

// The ranks tell each other what they send to whom. Returns the size of the largest part, in elements.
std::size_t StagedExchanges::compare_parts(const Collective& collective) {
  const auto ranks = static_cast<std::size_t>(layout_.ranks());
  const auto own = static_cast<std::size_t>(rank_);
  phases_.begin();
  const auto phase = phases_.current();
  std::memcpy(area_.slot(rank_, phase), collective.layout->input_parts->counts().data(), ranks * sizeof(std::size_t));
  phases_.end();
  phases_.await_all();
  std::size_t largest = 0;
  std::vector<std::size_t> sent(ranks);
  for (int r = 0; r < layout_.ranks(); ++r) {
    std::memcpy(sent.data(), area_.slot(r, phase), ranks * sizeof(std::size_t));
    largest = std::max(largest, *std::max_element(sent.begin(), sent.end()));
    const auto expected = collective.layout->output_parts->count(r);
    if (sent[own] == expected) continue;
    throw make_error(Errc::mismatch, "in {}, rank {} sends {} elements to rank {}, which expects {}",
                     describe(collective.operation), r, sent[own], rank_, expected);
  }
  return largest;
}

}  // namespace ddprun::comm

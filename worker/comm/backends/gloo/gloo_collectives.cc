#include "ddprun/worker/comm/backends/gloo/gloo_collectives.h"

#include <cstring>
#include <type_traits>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

using ::gloo::transport::UnboundBuffer;

enum class Algorithm { exchange, parts, ring };

// Up to here the latency of a second step costs more than sending everything to everybody.
constexpr std::size_t exchange_limit = std::size_t{64} * 1024;
// Between two ranks an exchange sends no more than the others, in half their steps; a large one adds up twice as much.
constexpr std::size_t exchange_limit_of_two = std::size_t{256} * 1024;
// In parts it takes two steps, and 2(n-1) in a ring: that overlaps sums and transfers better, and sends less over a
// link that ranks of a host share.
constexpr std::size_t largest_part = std::size_t{256} * 1024;
constexpr std::size_t most_in_parts_over_shared_links = std::size_t{256} * 1024;

// The same at every rank.
Algorithm algorithm_for(std::size_t bytes, int ranks, Links links) {
  const auto others = static_cast<std::size_t>(ranks - 1);
  if (bytes * others <= (ranks == 2 ? exchange_limit_of_two : exchange_limit)) return Algorithm::exchange;
  if (links == Links::shared && bytes > most_in_parts_over_shared_links) return Algorithm::ring;
  return bytes / (others + 1) <= largest_part ? Algorithm::parts : Algorithm::ring;
}

std::uint32_t tag_of(const Collective& collective) {
  return static_cast<std::uint32_t>(collective.sequence & 0xffff) << 16 | signature(collective.operation);
}

void* writable(ConstSpan span) {
  return const_cast<void*>(span.data);
}  // for Gloo, which takes no const memory

// One of as many parts as there are ranks, as equal as they can be.
Span part_of(Span whole, int rank, int ranks) {
  const auto begin = [&](int r) { return whole.count * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks); };
  auto* const data = static_cast<std::byte*>(whole.data) + begin(rank) * size_of(whole.dtype);
  return {data, begin(rank + 1) - begin(rank), whole.dtype};
}

// Calls action with a value of an element's width, which is all that Gloo needs to know of a type.
template <class Action>
void with_word(DType dtype, Action action) {
  switch (size_of(dtype)) {
    case 1:
      return action(std::uint8_t{});
    case 2:
      return action(std::uint16_t{});
    case 4:
      return action(std::uint32_t{});
    default:
      return action(std::uint64_t{});
  }
}

auto reduction(ReduceOp op, DType dtype) {
  return [op, dtype](void* output, const void* left, const void* right, std::size_t count) {
    comm::reduce(op, dtype, output, left, right, count);
  };
}

}  // namespace

std::uint64_t collective_slot(const Collective& collective, std::uint32_t step) {
  return std::uint64_t{0x20} << 56 | std::uint64_t{tag_of(collective)} << 24 | step;
}

std::uint64_t transfer_slot(const Operation& operation) {
  return std::uint64_t{0x21} << 56 | std::uint64_t{static_cast<std::uint32_t>(operation.tag)} << 24 |
         std::uint64_t{signature(operation)} << 8;
}

// In a ring: where not all call the same, some neighbours differ.
void GlooCollectives::compare_calls(const Collective& collective) {
  static_assert(std::is_trivially_copyable_v<Operation>);
  const int size = context_->size, rank = context_->rank, before = (rank + size - 1) % size;
  const auto slot = std::uint64_t{0x22} << 56 | (collective.sequence & 0xffffffff) << 24;
  Operation own = collective.operation, other;
  auto incoming = context_->createUnboundBuffer(&other, sizeof(other));
  auto outgoing = context_->createUnboundBuffer(&own, sizeof(own));
  incoming->recv(before, slot);
  outgoing->send((rank + 1) % size, slot);
  incoming->waitRecv(collective.timeout);
  outgoing->waitSend(collective.timeout);
  if (!agree(own, other)) {
    throw make_error(Errc::mismatch, "the ranks disagree on operation #{}: rank {} calls {}, rank {} calls {}",
                     collective.sequence, rank, describe(own), before, describe(other));
  }
  if (own.own_parts()) compare_parts(collective);
}

// Every rank tells every other how much it sends it.
void GlooCollectives::compare_parts(const Collective& collective) {
  const int size = context_->size, rank = context_->rank;
  const auto slot = collective_slot(collective, 0);
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(size)), told(sent.size());
  std::vector<std::unique_ptr<UnboundBuffer>> incoming, outgoing;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const auto at = static_cast<std::size_t>(r);
    sent[at] = collective.input_part(r).count;
    incoming.push_back(context_->createUnboundBuffer(&told[at], sizeof(told[at])));
    incoming.back()->recv(r, slot);
    outgoing.push_back(context_->createUnboundBuffer(&sent[at], sizeof(sent[at])));
    outgoing.back()->send(r, slot);
  }
  for (auto& buffer : incoming) buffer->waitRecv(collective.timeout);
  for (auto& buffer : outgoing) buffer->waitSend(collective.timeout);
  for (int r = 0; r < size; ++r) {
    const auto expected = collective.output_part(r).count;
    if (r == rank || told[static_cast<std::size_t>(r)] == expected) continue;
    throw make_error(Errc::mismatch, "in {}, rank {} sends rank {} {} elements, and that expects {}",
                     describe(collective.operation), r, rank, told[static_cast<std::size_t>(r)], expected);
  }
}

void GlooCollectives::allreduce(const Collective& collective) {
  switch (algorithm_for(collective.output.bytes(), context_->size, links_)) {
    case Algorithm::exchange:
      allreduce_by_exchange(collective);
      break;
    case Algorithm::parts:
      allreduce_by_parts(collective);
      break;
    case Algorithm::ring:
      allreduce_by_ring(collective);
      break;
  }
  finish_reduction(collective.operation.op, collective.output, context_->size);
}

// Every rank gets every rank's values and adds them up in rank order: the same bits everywhere.
void GlooCollectives::allreduce_by_exchange(const Collective& collective) {
  const auto op = collective.operation.op;
  const auto dtype = collective.operation.dtype;
  const auto count = collective.operation.count;
  const auto bytes = collective.output.bytes();
  const auto size = static_cast<std::size_t>(context_->size);
  const auto own = static_cast<std::size_t>(context_->rank);
  const auto slot = collective_slot(collective, 0);
  scratch_.resize(bytes * size);
  std::memcpy(scratch_.data() + own * bytes, collective.output.data, bytes);

  std::vector<std::unique_ptr<UnboundBuffer>> incoming, outgoing;
  for (std::size_t r = 0; r < size; ++r) {
    if (r == own) continue;
    incoming.push_back(context_->createUnboundBuffer(scratch_.data() + r * bytes, bytes));
    incoming.back()->recv(static_cast<int>(r), slot);
  }
  for (std::size_t step = 1; step < size; ++step) {  // each begins with its neighbour: no rank is everybody's first
    outgoing.push_back(context_->createUnboundBuffer(scratch_.data() + own * bytes, bytes));
    outgoing.back()->send(static_cast<int>((own + step) % size), slot);
  }
  for (auto& buffer : incoming) buffer->waitRecv(collective.timeout);
  for (auto& buffer : outgoing) buffer->waitSend(collective.timeout);
  const auto* values = scratch_.data();
  comm::reduce(op, dtype, collective.output.data, values, values + bytes, count);
  for (std::size_t r = 2; r < size; ++r) {
    comm::reduce(op, dtype, collective.output.data, collective.output.data, values + r * bytes, count);
  }
}

// Every rank sums one part, of all ranks, and gives it to all: two steps, whatever the number of ranks. A part of the
// result arrives where that part of the input was sent from, which its sum shows to have left.
void GlooCollectives::allreduce_by_parts(const Collective& collective) {
  const auto op = collective.operation.op;
  const auto dtype = collective.operation.dtype;
  const int size = context_->size, rank = context_->rank;
  const auto part = [&](int r) { return part_of(collective.output, r, size); };
  const auto own = part(rank);
  const auto inputs_slot = collective_slot(collective, 0), sums_slot = collective_slot(collective, 1);
  scratch_.resize(own.bytes() * static_cast<std::size_t>(size - 1));

  std::vector<std::unique_ptr<UnboundBuffer>> inputs, sums, outgoing;
  for (int step = 1; step < size; ++step) {
    const int source = (rank + size - step) % size;
    auto* const room = scratch_.data() + own.bytes() * static_cast<std::size_t>(step - 1);
    inputs.push_back(context_->createUnboundBuffer(room, own.bytes()));
    inputs.back()->recv(source, inputs_slot);
    sums.push_back(context_->createUnboundBuffer(part(source).data, part(source).bytes()));
    sums.back()->recv(source, sums_slot);
  }
  const auto send = [&](int destination, Span values, std::uint64_t slot) {
    outgoing.push_back(context_->createUnboundBuffer(values.data, values.bytes()));
    outgoing.back()->send(destination, slot);
  };
  for (int step = 1; step < size; ++step) send((rank + step) % size, part((rank + step) % size), inputs_slot);
  for (int step = 1; step < size; ++step) {
    inputs[static_cast<std::size_t>(step - 1)]->waitRecv(collective.timeout);
    const auto* const values = scratch_.data() + own.bytes() * static_cast<std::size_t>(step - 1);
    comm::reduce(op, dtype, own.data, own.data, values, own.count);
  }
  for (int step = 1; step < size; ++step) send((rank + step) % size, own, sums_slot);
  for (auto& buffer : sums) buffer->waitRecv(collective.timeout);
  for (auto& buffer : outgoing) buffer->waitSend(collective.timeout);
}

void GlooCollectives::allreduce_by_ring(const Collective& collective) {
  const auto dtype = collective.operation.dtype;
  const auto op = collective.operation.op;
  ::gloo::AllreduceOptions options(context_);
  options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
  with_word(dtype, [&]<class Word>(Word) {
    options.setOutput(static_cast<Word*>(collective.output.data), collective.output.count);
  });
  options.setReduceFunction(reduction(op, dtype));
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::allreduce(options);
}

// Gloo's ring, which leaves parts of the result in every rank's output: the root's alone is the caller's.
void GlooCollectives::reduce(const Collective& collective) {
  const auto dtype = collective.operation.dtype;
  const auto op = collective.operation.op;
  const int root = collective.operation.peer;
  const bool mine = context_->rank == root;
  if (!mine) scratch_.resize(collective.input.bytes());
  void* const output = mine ? collective.output.data : scratch_.data();
  ::gloo::ReduceOptions options(context_);
  with_word(dtype, [&]<class Word>(Word) {
    options.setInput(static_cast<Word*>(writable(collective.input)), collective.input.count);
    options.setOutput(static_cast<Word*>(output), collective.input.count);
  });
  options.setRoot(root);
  options.setReduceFunction(reduction(op, dtype));
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::reduce(options);
  if (mine) finish_reduction(op, collective.output, context_->size);
}

void GlooCollectives::broadcast(const Collective& collective) {
  ::gloo::BroadcastOptions options(context_);
  options.setOutput(static_cast<std::uint8_t*>(collective.output.data), collective.output.bytes());
  options.setRoot(collective.operation.peer);
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::broadcast(options);
}

void GlooCollectives::allgather(const Collective& collective) {
  ::gloo::AllgatherOptions options(context_);
  options.setInput(static_cast<std::uint8_t*>(writable(collective.input)), collective.input.bytes());
  options.setOutput(static_cast<std::uint8_t*>(collective.output.data), collective.output.bytes());
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::allgather(options);
}

// A ring of size-1 steps: part p starts at rank p+1, and every rank it passes adds its own share, so that it ends at
// rank p. At step s rank r sends part r-1-s and receives part r-2-s.
void GlooCollectives::reduce_scatter(const Collective& collective) {
  const auto op = collective.operation.op;
  const auto dtype = collective.operation.dtype;
  const int size = context_->size, rank = context_->rank;
  const auto share = [&](int part) { return collective.input_part((part + 2 * size) % size); };
  const auto room = collective.largest_part() * size_of(dtype);
  scratch_.resize(2 * room);
  ConstSpan sending = share(rank - 1);
  for (int step = 0; step < size - 1; ++step) {
    const auto slot = collective_slot(collective, static_cast<std::uint32_t>(step));
    const auto own = share(rank - 2 - step);
    auto* receiving = scratch_.data() + (step % 2 ? room : 0);
    auto incoming = context_->createUnboundBuffer(receiving, own.bytes());
    auto outgoing = context_->createUnboundBuffer(writable(sending), sending.bytes());
    if (own.count > 0) incoming->recv((rank + size - 1) % size, slot);
    if (sending.count > 0) outgoing->send((rank + 1) % size, slot);
    if (own.count > 0) incoming->waitRecv(collective.timeout);
    if (sending.count > 0) outgoing->waitSend(collective.timeout);
    const bool last = step == size - 2;
    comm::reduce(op, dtype, last ? static_cast<std::byte*>(collective.output.data) : receiving, receiving, own.data,
                 own.count);
    sending = {receiving, own.count, dtype};
  }
  finish_reduction(op, collective.output, size);
}

void GlooCollectives::barrier(const Collective& collective) {
  ::gloo::BarrierOptions options(context_);
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::barrier(options);
}

}  // namespace ddprun::comm

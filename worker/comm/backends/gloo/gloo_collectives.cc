#include "worker/comm/backends/gloo/gloo_collectives.h"

#include <cstring>
#include <type_traits>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>

#include "common/error.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

using ::gloo::transport::UnboundBuffer;

enum class Algorithm { exchange, parts, ring };

// For data up to this size, the latency of a second step costs more than sending everything to every rank.
constexpr std::size_t exchange_limit = std::size_t{64} * 1024;
// Between two ranks an exchange sends no more than the other algorithms, in half their steps, but reduces twice as
// much.
constexpr std::size_t exchange_limit_of_two = std::size_t{256} * 1024;
// An allreduce by parts takes 2 steps, a ring 2(n-1). For larger data the ring is faster: it overlaps reductions and
// transfers better, and sends less over a link that ranks of a host share.
constexpr std::size_t max_part_bytes = std::size_t{256} * 1024;
constexpr std::size_t max_bytes_by_parts_on_shared_links = std::size_t{256} * 1024;

// Chooses the same algorithm at every rank.
Algorithm algorithm_for(std::size_t bytes, int ranks, Links links) {
  const auto others = static_cast<std::size_t>(ranks - 1);
  if (bytes * others <= (ranks == 2 ? exchange_limit_of_two : exchange_limit)) return Algorithm::exchange;
  if (links == Links::shared && bytes > max_bytes_by_parts_on_shared_links) return Algorithm::ring;
  return bytes / (others + 1) <= max_part_bytes ? Algorithm::parts : Algorithm::ring;
}

std::uint32_t tag_of(const Collective& collective) {
  return static_cast<std::uint32_t>(collective.sequence & 0xffff) << 16 | signature(collective.operation);
}

// Gloo takes no pointers to const, also where it only reads.
void* writable(ConstSpan span) {
  return const_cast<void*>(span.data);
}

// Returns the part of a rank; parts differ by one element at most.
Span part_of(Span whole, int rank, int ranks) {
  const auto begin = [&](int r) { return whole.count * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks); };
  auto* const data = static_cast<std::byte*>(whole.data) + begin(rank) * size_of(whole.dtype);
  return {data, begin(rank + 1) - begin(rank), whole.dtype};
}

// Calls action with an integer of an element's size: Gloo needs to know no more about the type.
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

// Each rank compares its call with that of the previous rank: if not all are the same, at least two neighbours differ.
void GlooCollectives::compare_calls(const Collective& collective) {
  static_assert(std::is_trivially_copyable_v<Operation>);
  const int size = context_->size, rank = context_->rank, previous = (rank + size - 1) % size;
  const auto slot = std::uint64_t{0x22} << 56 | (collective.sequence & 0xffffffff) << 24;
  Operation own = collective.operation, other;
  auto incoming = context_->createUnboundBuffer(&other, sizeof(other));
  auto outgoing = context_->createUnboundBuffer(&own, sizeof(own));
  incoming->recv(previous, slot);
  outgoing->send((rank + 1) % size, slot);
  incoming->waitRecv(collective.timeout);
  outgoing->waitSend(collective.timeout);
  if (!agree(own, other)) {
    throw make_error(Errc::mismatch, "the ranks disagree on operation #{}: rank {} calls {}, rank {} calls {}",
                     collective.sequence, rank, describe(own), previous, describe(other));
  }
  if (own.own_parts()) compare_parts(collective);
}

// Every rank tells every other rank how much it will send to it.
void GlooCollectives::compare_parts(const Collective& collective) {
  const int size = context_->size, rank = context_->rank;
  const auto slot = collective_slot(collective, 0);
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(size)), received(sent.size());
  std::vector<std::unique_ptr<UnboundBuffer>> incoming, outgoing;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const auto at = static_cast<std::size_t>(r);
    sent[at] = collective.input_part(r).count;
    incoming.push_back(context_->createUnboundBuffer(&received[at], sizeof(received[at])));
    incoming.back()->recv(r, slot);
    outgoing.push_back(context_->createUnboundBuffer(&sent[at], sizeof(sent[at])));
    outgoing.back()->send(r, slot);
  }
  for (auto& buffer : incoming) buffer->waitRecv(collective.timeout);
  for (auto& buffer : outgoing) buffer->waitSend(collective.timeout);
  for (int r = 0; r < size; ++r) {
    const auto expected = collective.output_part(r).count;
    const auto count = received[static_cast<std::size_t>(r)];
    if (r == rank || count == expected) continue;
    throw make_error(Errc::mismatch, "in {}, rank {} sends {} elements to rank {}, which expects {}",
                     describe(collective.operation), r, count, rank, expected);
  }
}

bool GlooCollectives::fits_exchange(std::size_t bytes) const {
  return bytes * static_cast<std::size_t>(context_->size - 1) <= exchange_limit;
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

// Every rank receives the values of all ranks and reduces them in rank order: the same bits at every rank.
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
  for (std::size_t step = 1; step < size;
       ++step) {  // beginning with the next rank, so that no rank is the first of all
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

// Every rank reduces one part and sends the result to all ranks: two steps, whatever the number of ranks. A part of the
// result replaces the part of the input that was sent to its owner; since the owner has reduced it, the send is done.
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
    auto* const input = scratch_.data() + own.bytes() * static_cast<std::size_t>(step - 1);
    inputs.push_back(context_->createUnboundBuffer(input, own.bytes()));
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

// Gloo's ring leaves parts of the result in every rank's output, so only the root passes the caller's memory.
void GlooCollectives::reduce(const Collective& collective) {
  const auto dtype = collective.operation.dtype;
  const auto op = collective.operation.op;
  const int root = collective.operation.peer;
  const bool is_root = context_->rank == root;
  if (!is_root) scratch_.resize(collective.input.bytes());
  void* const output = is_root ? collective.output.data : scratch_.data();
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
  if (is_root) finish_reduction(op, collective.output, context_->size);
}

void GlooCollectives::broadcast(const Collective& collective) {
  if (fits_exchange(collective.output.bytes())) return broadcast_at_once(collective);
  ::gloo::BroadcastOptions options(context_);
  options.setOutput(static_cast<std::uint8_t*>(collective.output.data), collective.output.bytes());
  options.setRoot(collective.operation.peer);
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::broadcast(options);
}

// Gloo's tree takes a step for each of its levels.
void GlooCollectives::broadcast_at_once(const Collective& collective) {
  const int size = context_->size, root = collective.operation.peer;
  const auto slot = collective_slot(collective, 0);
  const auto buffer = context_->createUnboundBuffer(collective.output.data, collective.output.bytes());
  if (context_->rank != root) {
    buffer->recv(root, slot);
    buffer->waitRecv(collective.timeout);
    return;
  }
  for (int step = 1; step < size; ++step) buffer->send((root + step) % size, slot);
  for (int step = 1; step < size; ++step) buffer->waitSend(collective.timeout);
}

void GlooCollectives::allgather(const Collective& collective) {
  if (fits_exchange(collective.input.bytes())) return allgather_by_exchange(collective);
  ::gloo::AllgatherOptions options(context_);
  options.setInput(static_cast<std::uint8_t*>(writable(collective.input)), collective.input.bytes());
  options.setOutput(static_cast<std::uint8_t*>(collective.output.data), collective.output.bytes());
  options.setTag(tag_of(collective));
  options.setTimeout(collective.timeout);
  ::gloo::allgather(options);
}

// Gloo's ring takes size-1 steps.
void GlooCollectives::allgather_by_exchange(const Collective& collective) {
  const int size = context_->size, rank = context_->rank;
  const auto bytes = collective.input.bytes();
  const auto slot = collective_slot(collective, 0);
  auto* const output = static_cast<std::byte*>(collective.output.data);
  const auto part = [&](int r) { return output + static_cast<std::size_t>(r) * bytes; };
  if (part(rank) != collective.input.data) std::memcpy(part(rank), collective.input.data, bytes);
  std::vector<std::unique_ptr<UnboundBuffer>> incoming;
  for (int step = 1; step < size; ++step) {
    const int source = (rank + size - step) % size;
    incoming.push_back(context_->createUnboundBuffer(part(source), bytes));
    incoming.back()->recv(source, slot);
  }
  const auto outgoing = context_->createUnboundBuffer(part(rank), bytes);
  for (int step = 1; step < size; ++step) outgoing->send((rank + step) % size, slot);
  for (auto& buffer : incoming) buffer->waitRecv(collective.timeout);
  for (int step = 1; step < size; ++step) outgoing->waitSend(collective.timeout);
}

// A ring of size-1 steps: part p starts at rank p+1, every rank that it passes adds its own input, and it ends at rank
// p. In step s, rank r sends part r-1-s and receives part r-2-s.
void GlooCollectives::reduce_scatter(const Collective& collective) {
  const auto op = collective.operation.op;
  const auto dtype = collective.operation.dtype;
  const int size = context_->size, rank = context_->rank;
  const auto input_part = [&](int part) { return collective.input_part((part + 2 * size) % size); };
  const auto part_bytes = collective.largest_part() * size_of(dtype);
  scratch_.resize(2 * part_bytes);
  ConstSpan sending = input_part(rank - 1);
  for (int step = 0; step < size - 1; ++step) {
    const auto slot = collective_slot(collective, static_cast<std::uint32_t>(step));
    const auto own = input_part(rank - 2 - step);
    auto* receiving = scratch_.data() + (step % 2 ? part_bytes : 0);
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

#include "ddprun/worker/comm/backends/shm/shm_collectives.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/reduce/reduce_kernels.h"
#include "ddprun/worker/comm/reduce/variant.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t line = 64;
// Buffers from here on do not stay in the caches: their results are written past them.
constexpr std::size_t past_caches_bytes = 8 << 20;
// From here on the C library's copy is the quicker one, and in the phases of an allreduce anyway: it may write lines
// without having read them, which others have in their caches. Below, what it uses for that is slow to begin.
constexpr std::size_t by_library_bytes = 32 << 10;

std::size_t chunks_of(std::size_t count, std::size_t chunk) {
  return (count + chunk - 1) / chunk;
}

const std::byte* part(ConstSpan span, std::size_t element) {
  return static_cast<const std::byte*>(span.data) + element * size_of(span.dtype);
}
std::byte* part(Span span, std::size_t element) {
  return static_cast<std::byte*>(span.data) + element * size_of(span.dtype);
}

// A shift: dividing by a size that is only known at run time would be felt where little is to be done.
std::size_t elements_in(std::size_t bytes, DType dtype) {
  return bytes >> std::countr_zero(size_of(dtype));
}

// A copy of another rank's data: what they go to is the caller's, who may not look at it soon. Only where nobody has
// just read what is there.
void take(void* to, const void* from, std::size_t bytes, std::size_t whole) {
  if (whole >= past_caches_bytes) return kernels().copy_past_caches(to, from, bytes);
  if (bytes < by_library_bytes) return kernels().copy(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace

void ShmCollectives::announce(const Collective& collective) noexcept {
  if (!rounds_.ready()) return;
  give(collective, true);
  announced_ = true;
}

void ShmCollectives::execute(const Collective& collective) {
  if (!std::exchange(announced_, false)) {
    rounds_.await_room(collective.timeout);
    give(collective, true);
  }
  await_needed(collective, [&](int from) { return rounds_.await(from, collective.timeout), true; });
  finish(collective);
}

bool ShmCollectives::start(const Collective& collective) {
  if (!is_small(collective) || !rounds_.room()) return false;
  give(collective, false);
  return true;
}

bool ShmCollectives::test(const Collective& collective, const Deadline& deadline) {
  if (!await_needed(collective, [&](int from) { return rounds_.await_before(from, deadline); })) return false;
  finish(collective);
  return true;
}

// Whoever only gives need not wait for those who take, nor they for each other.
template <class Await>
bool ShmCollectives::await_needed(const Collective& collective, Await await) {
  const auto& operation = collective.operation;
  if (only_gives(collective)) return rounds_.check_group(), true;
  if (operation.kind == OpKind::broadcast && operation.peer != rank_) {
    if (!await(operation.peer)) return false;
    if (static_cast<Given>(rounds_.given_by(operation.peer)) == Given::data) return true;
  }
  return await(AnnouncementRing::everybody);
}

// Broadcast's root, and reduce's other ranks, when its data are in its announcement, and nobody's can be elsewhere.
bool ShmCollectives::only_gives(const Collective& collective) const {
  const auto& operation = collective.operation;
  if (static_cast<Given>(rounds_.given_by(rank_)) != Given::data) return false;
  if (operation.kind == OpKind::broadcast) return operation.peer == rank_;
  return operation.kind == OpKind::reduce && operation.peer != rank_ &&
         gift_bytes(collective, rank_) < place_from_bytes();
}

// Others need to know no more of a rank's part in it than what it gives.
bool ShmCollectives::can_be_given(const Operation& operation) const {
  return !ShmExchanges::takes(operation) || (operation.kind == OpKind::all_to_all && !operation.unequal());
}

bool ShmCollectives::is_small(const Collective& collective) const {
  return can_be_given(collective.operation) && gift_bytes(collective, collective.operation.peer) <= board_.gift_bytes();
}

// In an operation with a root, only the root gives data where it sends, every rank where it receives.
std::size_t ShmCollectives::gift_bytes(const Collective& collective, int r) const {
  const auto& operation = collective.operation;
  const auto bytes = operation.count * size_of(operation.dtype);
  if (operation.kind == OpKind::broadcast) return r == operation.peer ? bytes : 0;
  if (operation.kind == OpKind::reduce_scatter || operation.kind == OpKind::all_to_all)
    return bytes * static_cast<std::size_t>(board_.ranks());
  return bytes;
}

void ShmCollectives::give(const Collective& collective, bool may_give_place) {
  const auto bytes = gift_bytes(collective, rank_);
  auto given = is_small(collective) ? Given::data : Given::nothing;
  if (may_give_place && bytes >= place_from_bytes()) {
    if (const auto handle = place_of(collective); handle.reachable()) {
      given = Given::place;
      std::memcpy(rounds_.gift(sizeof handle), &handle, sizeof handle);
    }
  }
  if (given == Given::data && bytes > 0) kernels().copy(rounds_.gift(bytes), collective.input.data, bytes);
  if (given == Given::nothing) go_ahead_by_slots(collective);
  rounds_.announce({collective.sequence, fingerprint(collective.operation)}, static_cast<std::uint32_t>(given));
}

// Of an input that all may read while this rank writes its output.
RegionHandle ShmCollectives::place_of(const Collective& collective) {
  const bool apart = collective.operation.kind != OpKind::all_to_all || collective.input.data != collective.output.data;
  return apart && can_be_given(collective.operation) ? own_places_.handle_of(collective.input) : RegionHandle{};
}

// From here on a second synchronisation costs less than a copy of the data. With more than two ranks it is rarely
// between two processors that have nothing else to do.
std::size_t ShmCollectives::place_from_bytes() const {
  return board_.ranks() == 2 ? 2048 : 16 * 1024 + 1;
}

// Nothing, where they gave different things. The same answer at every rank.
ShmCollectives::Given ShmCollectives::given_by_all(const Collective& collective) const {
  const auto given_by = [&](int r) { return static_cast<Given>(rounds_.given_by(r)); };
  if (collective.operation.kind == OpKind::broadcast) return given_by(collective.operation.peer);
  const auto given = given_by(0);
  for (int r = 1; r < board_.ranks(); ++r)
    if (given_by(r) != given) return Given::nothing;
  return given;
}

void ShmCollectives::finish(const Collective& collective) {
  if (only_gives(collective)) return rounds_.leave();
  const auto given = given_by_all(collective);
  if (given == Given::nothing) {
    finish_by_slots(collective);
  } else {
    const bool in_place = given == Given::place;
    in_place ? find_places(collective) : find_gifts(collective);
    if (in_place && collective.operation.kind == OpKind::allreduce) {
      allreduce_in_place(collective);
    } else {
      finish_with_inputs(collective);
    }
    // Until all have done with the others' memory, nobody may go on with his own.
    if (in_place) rounds_.meet(collective.timeout);
  }
  rounds_.leave();
}

void ShmCollectives::find_gifts(const Collective& collective) {
  const auto bytes = gift_bytes(collective, collective.operation.peer);
  for (int r = 0; r < board_.ranks(); ++r) inputs_[static_cast<std::size_t>(r)] = rounds_.gift_from(r, bytes);
  inputs_[static_cast<std::size_t>(rank_)] = collective.input.data;
}

void ShmCollectives::find_places(const Collective& collective) {
  for_each_other([&](int r) {
    if (static_cast<Given>(rounds_.given_by(r)) != Given::place) return;  // of a broadcast, only the root's counts
    RegionHandle handle;
    std::memcpy(&handle, rounds_.gift_from(r, sizeof handle), sizeof handle);
    inputs_[static_cast<std::size_t>(r)] = peers_.map(r, handle);
  });
  inputs_[static_cast<std::size_t>(rank_)] = collective.input.data;
}

void ShmCollectives::finish_with_inputs(const Collective& collective) {
  const auto op = collective.operation.op;
  const auto dtype = collective.operation.dtype;
  const auto count = collective.operation.count;
  const int peer = collective.operation.peer;
  const auto bytes = count * size_of(dtype);
  const auto& output = collective.output;
  switch (collective.operation.kind) {
    case OpKind::allreduce:
      return reduce_inputs(op, 0, output);
    case OpKind::reduce:
      if (rank_ == peer) reduce_inputs(op, 0, {output.data, count, dtype});
      return;
    case OpKind::reduce_scatter:
      return reduce_inputs(op, static_cast<std::size_t>(rank_) * count, output);
    case OpKind::broadcast:
      if (rank_ != peer) take(output.data, inputs_[static_cast<std::size_t>(peer)], bytes, bytes);
      return;
    case OpKind::allgather:
      return take_blocks(collective, 0);
    case OpKind::all_to_all:
      return take_blocks(collective, static_cast<std::size_t>(rank_) * bytes);
    default:
      return;
  }
}

// The output's blocks, of which each is to be found in its rank's input, so many bytes from its start.
void ShmCollectives::take_blocks(const Collective& collective, std::size_t from) {
  const auto& output = collective.output;
  const auto bytes = collective.operation.count * size_of(output.dtype);
  for (std::size_t r = 0; r < inputs_.size(); ++r) {
    auto* const to = static_cast<std::byte*>(output.data) + r * bytes;
    const auto* const block = static_cast<const std::byte*>(inputs_[r]) + from;
    if (to != block) take(to, block, bytes, output.bytes());  // the own one may be where it is to go
  }
}

// result := op over all inputs from their element first on.
void ShmCollectives::reduce_inputs(ReduceOp op, std::size_t first, const Span& result) {
  void* const output = result.data;
  reduce_all(op, result.dtype, {&output, 1}, inputs_from(first, result.dtype), result.count);
}

std::span<const void* const> ShmCollectives::inputs_from(std::size_t first, DType dtype) {
  if (first == 0) return inputs_;
  for (std::size_t r = 0; r < inputs_.size(); ++r)
    pieces_[r] = static_cast<const std::byte*>(inputs_[r]) + first * size_of(dtype);
  return pieces_;
}

// Every rank reduces its slice of all buffers, and writes the result into all of them.
void ShmCollectives::allreduce_in_place(const Collective& collective) {
  const auto& buffer = collective.output;
  const auto slice = slice_within(buffer.count, buffer.dtype, rank_);
  for (std::size_t r = 0; r < inputs_.size(); ++r) outputs_[r] = input_place(r, slice.begin * size_of(buffer.dtype));
  reduce_all(collective.operation.op, buffer.dtype, outputs_, inputs_from(slice.begin, buffer.dtype), slice.count());
}

// Of an input that may be written: its rank gave it as a place.
std::byte* ShmCollectives::input_place(std::size_t r, std::size_t offset) const {
  return static_cast<std::byte*>(const_cast<void*>(inputs_[r])) + offset;
}

// Before the announcement, which so tells of it too: one synchronisation less. Of the operations with data, an
// allreduce alone goes through the slots whenever one rank gives nothing.
void ShmCollectives::go_ahead_by_slots(const Collective& collective) {
  if (collective.operation.kind != OpKind::allreduce || !phases_.may_go_ahead()) return;
  phases_.go_ahead([&](std::uint32_t phase) { hand_out(collective.output, 0, phase); });
}

void ShmCollectives::finish_by_slots(const Collective& collective) {
  if (ShmExchanges::takes(collective.operation)) return exchanges_.execute(collective);
  phases_.enter(Deadline::in(collective.timeout));
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

// Of each chunk every rank reduces one slice. Stage 0 hands the other slices' inputs to their owners, 1 reduces the own
// slice and hands it to all, 2 takes the others'. In a slot a rank's slice has a place that no chunk's size moves:
// while others still take the own slice of one chunk, the inputs of a later one are written beside it. No store goes
// past the caches, however large the buffer: stage 0 has just read the lines that stage 2 writes, and they are still
// there.
void ShmCollectives::allreduce(const Collective& collective) {
  const auto& buffer = collective.output;
  const auto chunks = chunks_of(buffer.count, allreduce_chunk(buffer.dtype));
  phases_.pipeline(chunks, 3, [&](std::size_t stage, std::size_t chunk, std::uint32_t phase) {
    if (stage == 0) {
      hand_out(buffer, chunk, phase);
    } else if (stage == 1) {
      reduce_for_all(collective.operation.op, slice_of(buffer, chunk, rank_), phase);
    } else {
      for_each_other([&](int r) {
        const auto slice = slice_of(buffer, chunk, r);
        std::memcpy(slice.data, place(r, r, phase), slice.bytes());
      });
    }
  });
}

// The own slice, into its place in the slot and into the buffer.
void ShmCollectives::reduce_for_all(ReduceOp op, const Span& own, std::uint32_t phase) {
  find_slices(own.data, phase);
  void* const outputs[] = {place(rank_, rank_, phase), own.data};
  reduce_all(op, own.dtype, outputs, inputs_, own.count);
}

void ShmCollectives::hand_out(const Span& buffer, std::size_t chunk, std::uint32_t phase) const {
  for_each_other([&](int r) {
    const auto slice = slice_of(buffer, chunk, r);
    std::memcpy(place(rank_, r, phase), slice.data, slice.bytes());
  });
}

std::size_t ShmCollectives::allreduce_chunk(DType dtype) const {
  return static_cast<std::size_t>(board_.ranks()) * elements_in(place_bytes(), dtype);
}

// Of a chunk of an allreduce's buffer, what rank r reduces.
Span ShmCollectives::slice_of(const Span& buffer, std::size_t chunk, int r) const {
  const auto first = chunk * allreduce_chunk(buffer.dtype);
  const auto slice = slice_within(std::min(allreduce_chunk(buffer.dtype), buffer.count - first), buffer.dtype, r);
  return {part(buffer, first + slice.begin), slice.count(), buffer.dtype};
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
    for (int r = 0; r < board_.ranks(); ++r)
      inputs_[static_cast<std::size_t>(r)] = r == rank_ ? own : board_.slot(r, phase);
    reduce_inputs(collective.operation.op, 0, {part(collective.output, first), elements, collective.operation.dtype});
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
    if (stage == 1 && rank_ != root) take(part(buffer, first), slot, bytes, buffer.bytes());
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
    for_each_other([&](int r) { take(block(r), board_.slot(r, phase), bytes, collective.output.bytes()); });
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
void ShmCollectives::reduce_own(ReduceOp op, const void* own_input, Span result, std::uint32_t phase) {
  find_slices(own_input, phase);
  reduce_inputs(op, 0, result);
}

void ShmCollectives::find_slices(const void* own_input, std::uint32_t phase) {
  for (int r = 0; r < board_.ranks(); ++r)
    inputs_[static_cast<std::size_t>(r)] = r == rank_ ? own_input : place(r, rank_, phase);
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
ShmCollectives::Range ShmCollectives::slice_within(std::size_t count, DType dtype, int rank) const {
  const auto ranks = static_cast<std::size_t>(board_.ranks());
  const auto lines = (count * size_of(dtype) + line - 1) / line;
  const auto share = elements_in((lines + ranks - 1) / ranks * line, dtype);
  const auto begin = std::min(count, static_cast<std::size_t>(rank) * share);
  return {begin, std::min(count, begin + share)};
}

}  // namespace ddprun::comm

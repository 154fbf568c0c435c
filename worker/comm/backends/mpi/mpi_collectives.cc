#include "worker/comm/backends/mpi/mpi_collectives.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "common/error.h"
#include "worker/comm/backends/mpi/message_tags.h"
#include "worker/comm/backends/mpi/mpi_notices.h"
#include "worker/comm/backends/mpi/polling.h"
#include "worker/comm/reduce/reduce_kernels.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t most_outstanding = 64;
// MPI counts in int.
constexpr auto most_elements = static_cast<std::size_t>(std::numeric_limits<int>::max());

bool fits(const Collective& collective) {
  return collective.input.count <= most_elements && collective.output.count <= most_elements &&
         collective.operation.count <= most_elements;
}

bool in_place(const Collective& collective, int rank) {
  const auto& operation = collective.operation;
  return operation.kind == OpKind::allreduce || (operation.kind == OpKind::reduce && operation.peer == rank);
}

bool overlap(ConstSpan input, Span output) {
  if (input.count == 0 || output.count == 0) return false;
  const auto end = [](ConstSpan span) { return static_cast<const std::byte*>(span.data) + span.bytes(); };
  const std::less<const void*> before;
  return before(input.data, end(output)) && before(output.data, end(input));
}

std::vector<int> numbers(const Parts& parts, int ranks, bool offsets) {
  std::vector<int> values;
  for (int r = 0; r < ranks; ++r) values.push_back(static_cast<int>(offsets ? parts.offset(r) : parts.count(r)));
  return values;
}

// The number of elements that MPI wants to know: that of the buffer, or of this rank's or each rank's part.
std::size_t count_of(const Collective& collective) {
  switch (collective.operation.kind) {
    case OpKind::allgather:
    case OpKind::gather:
      return collective.input.count;
    case OpKind::scatter:
    case OpKind::reduce_scatter:
      return collective.output.count;
    default:
      return collective.operation.count;
  }
}

}  // namespace

struct MpiCollectives::Pending {
  enum Index : std::size_t { collective, incoming, outgoing };
  std::array<MpiFunctions::Request, 3> requests{};
  std::uint64_t own_call = 0, previous_call = 0;
  bool compared = false;
  MpiFunctions::Collective call{};
  std::vector<int> input_counts, input_offsets, output_counts, output_offsets;
  // The memory that MPI uses: the group's, or a copy.
  MpiMemory::Shared input_memory, output_memory;
  Staging input_copy, output_copy;
  bool copied_output = false;
  int polls = 0;
  int start_code = 0;  // MPI's result of starting the operation

  const void* lend_input(ConstSpan span, const MpiMemory& memory, bool copied) {
    if (!copied && span.bytes() > MpiMemory::always_copied && (input_memory = memory.find(span.data, span.bytes())))
      return span.data;
    auto* const copy = input_copy.reserve(span.bytes());
    if (span.count > 0) std::memcpy(copy, span.data, span.bytes());
    return copy;
  }
  void* lend_output(Span span, const MpiMemory& memory, bool copied, bool has_values) {
    copied_output = false;
    if (!copied && span.bytes() > MpiMemory::always_copied && (output_memory = memory.find(span.data, span.bytes())))
      return span.data;
    copied_output = true;
    auto* const copy = output_copy.reserve(span.bytes());
    if (has_values && span.count > 0) std::memcpy(copy, span.data, span.bytes());
    return copy;
  }
  void set_parts(const Layout& layout, int ranks) {
    if (layout.input_parts) {
      input_counts = numbers(*layout.input_parts, ranks, false);
      input_offsets = numbers(*layout.input_parts, ranks, true);
      call.input_counts = input_counts.data();
      call.input_offsets = input_offsets.data();
    }
    if (layout.output_parts) {
      output_counts = numbers(*layout.output_parts, ranks, false);
      output_offsets = numbers(*layout.output_parts, ranks, true);
      call.output_counts = output_counts.data();
      call.output_offsets = output_offsets.data();
    }
  }
  void release() {
    input_memory.reset();
    output_memory.reset();
    input_copy.trim();
    output_copy.trim();
  }
};

MpiCollectives::MpiCollectives(const MpiGroupContext& context, MpiNotices& notices)
    : context_(context), notices_(notices) {}

MpiCollectives::~MpiCollectives() {
  while (!pending_.empty()) abandon_oldest();
}

bool MpiCollectives::start(const Collective& collective) {
  if (pending_.size() >= most_outstanding || !fits(collective) || context_.interrupted) return false;
  begin(collective);
  return true;
}

bool MpiCollectives::test(const Collective& collective, const Deadline& deadline) {
  auto& oldest = *pending_.front();
  try {
    Polling polling(context_.library.waiters());
    while (!poll(oldest, collective)) {
      if (deadline.expired()) return false;
      polling.pause();
    }
    finish(oldest, collective);
  } catch (...) {
    abandon_oldest();
    throw;
  }
  oldest.release();
  idle_.push_back(std::move(pending_.front()));
  pending_.pop_front();
  return true;
}

void MpiCollectives::execute(const Collective& collective) {
  if (!fits(collective)) return execute_in_pieces(collective);
  begin(collective);
  if (test(collective, Deadline::in(collective.timeout))) return;
  abandon_oldest();
  throw make_error(Errc::timeout, "{} has not finished", describe(collective.operation));
}

void MpiCollectives::execute_in_pieces(const Collective& collective) {
  const auto& operation = collective.operation;
  if (operation.kind != OpKind::allreduce && operation.kind != OpKind::reduce && operation.kind != OpKind::broadcast)
    throw make_error(Errc::unsupported, "{}: MPI takes {} elements at most", describe(operation), most_elements);
  constexpr std::size_t piece_elements = std::size_t{1} << 28;
  const auto advanced = [&](auto span, std::size_t from, std::size_t count) {
    using Data = decltype(span.data);
    if (span.count == 0) return span;
    span.data = static_cast<Data>(static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(span.data))) +
                                  from * size_of(span.dtype));
    span.count = count;
    return span;
  };
  for (std::size_t from = 0; from < operation.count; from += piece_elements) {
    auto piece = collective;
    piece.operation.count = std::min(piece_elements, operation.count - from);
    piece.input = advanced(collective.input, from, piece.operation.count);
    piece.output = advanced(collective.output, from, piece.operation.count);
    execute(piece);
  }
}

void MpiCollectives::begin(const Collective& collective) {
  if (idle_.empty()) idle_.push_back(std::make_unique<Pending>());
  auto& pending = *idle_.back();
  prepare(pending, collective);
  const auto& mpi = context_.library.calls();
  const auto [rank, size] = context_.rank_info;
  pending_.push_back(std::move(idle_.back()));  // first, as MPI uses its memory from now on
  idle_.pop_back();
  const std::lock_guard lock(context_.library.mutex());
  int code = mpi.call<&MpiFunctions::receive>(context_.communicator, &pending.previous_call,
                                              sizeof(pending.previous_call), (rank + size - 1) % size,
                                              MessageTags::call, &pending.requests[Pending::incoming]);
  if (!code)
    code = mpi.call<&MpiFunctions::send>(context_.communicator, &pending.own_call, sizeof(pending.own_call),
                                         (rank + 1) % size, MessageTags::call, &pending.requests[Pending::outgoing]);
  if (!code)
    code = mpi.call<&MpiFunctions::start>(context_.communicator, &pending.call, &pending.requests[Pending::collective]);
  pending.start_code = code;
}

void MpiCollectives::prepare(Pending& pending, const Collective& collective) {
  const auto& operation = collective.operation;
  const int rank = context_.rank_info.rank;
  const bool at_root = operation.peer == rank, broadcasts = operation.kind == OpKind::broadcast;
  const bool into_itself = in_place(collective, rank);
  pending.polls = 0;
  pending.previous_call = 0;
  pending.compared = false;
  pending.own_call = fingerprint(operation) | 1;
  pending.call = {.kind = operation.kind,
                  .dtype = operation.dtype,
                  .op = operation.op,
                  .input = nullptr,
                  .output = nullptr,
                  .count = static_cast<int>(count_of(collective)),
                  .root = operation.peer,
                  .input_counts = nullptr,
                  .input_offsets = nullptr,
                  .output_counts = nullptr,
                  .output_offsets = nullptr};
  if (operation.unequal() && collective.layout) pending.set_parts(*collective.layout, context_.rank_info.size);
  if (operation.kind == OpKind::barrier) return;
  // MPI takes no input that overlaps its output: the smaller one is copied.
  const bool apart = into_itself || broadcasts || !overlap(collective.input, collective.output);
  const bool input_is_smaller = collective.input.count <= collective.output.count;
  if (!into_itself && !broadcasts)
    pending.call.input = pending.lend_input(collective.input, context_.memory, !apart && input_is_smaller);
  pending.call.output = pending.lend_output(collective.output, context_.memory, !apart && !input_is_smaller,
                                            into_itself || (broadcasts && at_root));
}

// Returns whether it has finished. MPI may report calls that differ as an error of its own: they are compared first.
bool MpiCollectives::poll(Pending& pending, const Collective& collective) {
  constexpr int polls_between_comparisons = 32;
  if (context_.interrupted) throw std::runtime_error("interrupted");
  context_.library.check(pending.start_code, name_of(collective.operation.kind));
  const std::lock_guard lock(context_.library.mutex());
  const auto& mpi = context_.library.calls();
  bool finished = false;
  const int code =
      mpi.call<&MpiFunctions::test_all>(static_cast<int>(pending.requests.size()), pending.requests.data(), &finished);
  const bool compares = code || ++pending.polls % polls_between_comparisons == 0;
  if (!finished && compares && !pending.compared) {
    bool received = false;
    int source = 0, bytes = 0;
    context_.library.check(
        mpi.call<&MpiFunctions::test_receive>(&pending.requests[Pending::incoming], &received, &source, &bytes),
        "MPI_Test");
    if (received || pending.previous_call) compare(pending, collective);
    pending.compared = received;
  }
  context_.library.check(code, name_of(collective.operation.kind));
  if (finished) {
    compare(pending, collective);
    notices_.expect_none();
  }
  return finished;
}

void MpiCollectives::compare(const Pending& pending, const Collective& collective) const {
  const auto [rank, size] = context_.rank_info;
  if (pending.previous_call != pending.own_call) throw CallsDiffer(collective.sequence, (rank + size - 1) % size);
}

void MpiCollectives::finish(Pending& pending, const Collective& collective) const {
  const auto& output = collective.output;
  if (pending.copied_output && output.count > 0) std::memcpy(output.data, pending.call.output, output.bytes());
  if (collective.operation.reduces() && output.count > 0)
    finish_reduction(collective.operation.op, output, context_.rank_info.size);
}

// MPI may use its memory until the process ends.
void MpiCollectives::abandon_oldest() noexcept {
  context_.library.abandon();
  [[maybe_unused]] auto* const left_to_mpi = pending_.front().release();
  pending_.pop_front();
}

}  // namespace ddprun::comm

#include "worker/comm/operations/checked_call.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <string_view>

#include "common/error.h"

namespace ddprun::comm {
namespace {

std::string text_of(ConstSpan span) {
  return fmt::format("{} {}", span.count, ddprun::name_of(span.dtype));
}

void check_rank(std::string_view what, int value, RankInfo rank_info) {
  if (value >= 0 && value < rank_info.size) return;
  throw make_error(Errc::usage, "{} {} is not a rank of this group, which has {} (0 to {})", what, value,
                   rank_info.size, rank_info.size - 1);
}

// Limits counts so that sizes in bytes do not overflow.
constexpr std::size_t most_elements = std::numeric_limits<std::ptrdiff_t>::max() / sizeof(double);

[[noreturn]] void refuse_memory(std::string_view what, ConstSpan span) {
  if (span.count > most_elements) {
    throw make_error(Errc::usage, "{}: {} elements of {} do not fit into memory", what, span.count,
                     ddprun::name_of(span.dtype));
  }
  throw make_error(Errc::usage, "{}: {} elements of {} at a null address", what, span.count,
                   ddprun::name_of(span.dtype));
}

void check_memory(std::string_view what, ConstSpan span) {
  if (span.count > most_elements || (span.count > 0 && !span.data)) refuse_memory(what, span);
}

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16;
}

bool needs_float(ReduceOp op) {
  return op == ReduceOp::average || op == ReduceOp::premultiplied_sum;
}
bool needs_integer(ReduceOp op) {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

[[noreturn]] void refuse_reduction(std::string_view what, DType dtype, ReduceOp op) {
  const auto type = ddprun::name_of(dtype);
  if (needs_integer(op)) throw make_error(Errc::usage, "{}: {} is for integers, not for {}", what, name_of(op), type);
  throw make_error(Errc::usage, "{}: {} of {} would not be an integer; use sum and scale the result", what, name_of(op),
                   type);
}

void check_reduction(std::string_view what, DType dtype, ReduceOp op) {
  if (is_float(dtype) ? needs_integer(op) : needs_float(op)) refuse_reduction(what, dtype, op);
}

bool same(ConstSpan one, ConstSpan other) {
  return one.data == other.data && one.count == other.count;
}

// Refuses an input and output that overlap, unless the operation is in place.
void check_apart(std::string_view what, ConstSpan input, ConstSpan output, bool in_place) {
  if (in_place || input.count == 0 || output.count == 0) return;
  const auto end = [](ConstSpan span) { return static_cast<const std::byte*>(span.data) + span.bytes(); };
  const std::less<const void*> before;
  if (!before(input.data, end(output)) || !before(output.data, end(input))) return;
  throw make_error(Errc::usage, "{}: input and output overlap, but not as in an in-place operation", what);
}

void check_same_shape(std::string_view what, ConstSpan input, ConstSpan output) {
  if (input.count == output.count && input.dtype == output.dtype) return;
  throw make_error(Errc::usage, "{}: an input of {} needs an output of the same count and type, not of {}", what,
                   text_of(input), text_of(output));
}

void check_part(std::string_view what, ConstSpan part, std::size_t count, RankInfo rank_info) {
  if (part.count == count) return;
  throw make_error(Errc::usage, "{}: the part of rank {} has {}, but its count is {}", what, rank_info.rank,
                   text_of(part), count);
}

void check_whole(std::string_view what, ConstSpan part, ConstSpan whole, std::size_t count) {
  if (part.dtype == whole.dtype && whole.count == count) return;
  throw make_error(Errc::usage, "{}: parts of {} need {} {} in all, not {}", what, ddprun::name_of(part.dtype), count,
                   ddprun::name_of(part.dtype), text_of(whole));
}

Error too_many(std::string_view what) {
  return make_error(Errc::usage, "{}: the ranks' parts together do not fit into memory", what);
}

Parts checked_parts(std::string_view what, const Counts& counts, RankInfo rank_info) {
  if (counts.size() != static_cast<std::size_t>(rank_info.size))
    throw make_error(Errc::usage, "{}: {} counts for {} ranks", what, counts.size(), rank_info.size);
  std::size_t total = 0;
  for (const auto count : counts)
    if (__builtin_add_overflow(total, count, &total)) throw too_many(what);
  return Parts(counts);
}

// Returns the number of elements in equal parts.
std::size_t checked_total(std::string_view what, std::size_t part, RankInfo rank_info) {
  std::size_t total = 0;
  if (__builtin_mul_overflow(part, static_cast<std::size_t>(rank_info.size), &total)) throw too_many(what);
  return total;
}

std::uint64_t digest(const std::vector<std::uint64_t>& values) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const auto value : values) {
    hash = (hash ^ value) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return hash;
}

std::uint32_t digest(const Parts& parts) {
  return static_cast<std::uint32_t>(digest({parts.counts().begin(), parts.counts().end()})) | 1;
}

// Sets the unequal parts of the whole; returns their total number of elements.
std::size_t set_parts(std::string_view what, Call& call, ConstSpan part, bool whole_is_input, const Counts& counts,
                      RankInfo rank_info) {
  auto parts = std::make_unique<const Parts>(checked_parts(what, counts, rank_info));
  check_part(what, part, parts->count(rank_info.rank), rank_info);
  const auto total = parts->total();
  call.operation.parts = digest(*parts);
  const auto layout = std::make_shared<Layout>();
  (whole_is_input ? layout->input_parts : layout->output_parts) = std::move(parts);
  call.layout = layout;
  return total;
}

// Returns whether part is this rank's part of the whole.
bool is_own_part(const Call& call, ConstSpan part, ConstSpan whole, bool whole_is_input, RankInfo rank_info) {
  if (!call.layout) {
    const auto offset = static_cast<std::size_t>(rank_info.rank) * part.bytes();
    return part.data == static_cast<const std::byte*>(whole.data) + offset;
  }
  return same(part, whole_is_input ? call.input_part(rank_info.rank) : ConstSpan(call.output_part(rank_info.rank)));
}

// Makes a call of an operation between one part at each rank and a whole. whole_is_input: true for scatter and
// reduce_scatter. has_whole: true at all ranks, or only at the root.
Call parts_call(std::string_view what, const Operation& operation, ConstSpan input, Span output, bool whole_is_input,
                bool has_whole, const Counts* counts, RankInfo rank_info, OpOptions options) {
  const ConstSpan part = whole_is_input ? ConstSpan(output) : input;
  const ConstSpan whole = whole_is_input ? input : ConstSpan(output);
  Call call{operation, input, output, options, nullptr};
  call.operation.dtype = part.dtype;
  const auto total = counts ? set_parts(what, call, part, whole_is_input, *counts, rank_info)
                            : checked_total(what, part.count, rank_info);
  call.operation.count = counts ? total : part.count;
  check_memory(what, part);
  if (!has_whole) {
    (whole_is_input ? call.input.count : call.output.count) = 0;
    return call;
  }
  check_whole(what, part, whole, total);
  check_memory(what, whole);
  check_apart(what, input, output, is_own_part(call, part, whole, whole_is_input, rank_info));
  return call;
}

Operation reducing(OpKind kind, Reduction reduction, DType dtype = DType::uint8, std::size_t count = 0, int root = -1) {
  return {.kind = kind, .dtype = dtype, .op = reduction.op, .count = count, .factor = reduction.factor, .peer = root};
}

// Makes one call of several spans; each has been checked as an operation of its own. measured: the spans whose sizes
// are the same at all ranks.
Call coalesced_call(Operation operation, std::vector<ConstSpan> inputs, std::vector<Span> outputs,
                    const std::vector<ConstSpan>& measured, OpOptions options) {
  std::vector<std::uint64_t> shape;
  std::size_t count = 0, bytes = 0;
  bool one_type = true;
  for (const auto& span : measured) {
    shape.push_back(std::uint64_t{span.count} << 8 | static_cast<std::uint64_t>(span.dtype));
    count += span.count;
    bytes += span.bytes();
    one_type = one_type && span.dtype == measured.front().dtype;
  }
  operation.dtype = one_type && !measured.empty() ? measured.front().dtype : DType::uint8;
  operation.count = one_type ? count : bytes;
  operation.spans = static_cast<std::uint32_t>(measured.size()) + 1;
  operation.layout = digest(shape);
  const auto layout = std::make_shared<Layout>();
  layout->inputs = std::move(inputs);
  layout->outputs = std::move(outputs);
  return {operation, {}, {}, options, layout};
}

void check_pairs(std::string_view what, std::size_t inputs, std::size_t outputs) {
  if (inputs == outputs) return;
  throw make_error(Errc::usage, "{}: {} inputs for {} outputs", what, inputs, outputs);
}

}  // namespace

Call checked_allreduce(ConstSpan input, Span output, Reduction reduction, OpOptions options) {
  check_memory("allreduce", input);
  check_reduction("allreduce", input.dtype, reduction.op);
  if (!same(input, output) || input.dtype != output.dtype) {
    check_same_shape("allreduce", input, output);
    check_memory("allreduce", output);
    check_apart("allreduce", input, output, false);
  }
  return {reducing(OpKind::allreduce, reduction, input.dtype, input.count), input, output, options, nullptr};
}

Call checked_reduce(ConstSpan input, Span output, int root, Reduction reduction, RankInfo rank_info,
                    OpOptions options) {
  check_rank("reduce: root", root, rank_info);
  check_memory("reduce", input);
  check_reduction("reduce", input.dtype, reduction.op);
  if (rank_info.rank == root) {
    check_same_shape("reduce", input, output);
    check_memory("reduce", output);
    check_apart("reduce", input, output, same(input, output));
  } else {
    output = {};
  }
  return {reducing(OpKind::reduce, reduction, input.dtype, input.count, root), input, output, options, nullptr};
}

Call checked_broadcast(Span buffer, int root, RankInfo rank_info, OpOptions options) {
  check_rank("broadcast: root", root, rank_info);
  check_memory("broadcast", buffer);
  return {{.kind = OpKind::broadcast, .dtype = buffer.dtype, .count = buffer.count, .peer = root},
          buffer,
          buffer,
          options,
          nullptr};
}

namespace {

void check_transfer(std::string_view what, std::string_view partner_is, ConstSpan buffer, int partner, int tag,
                    RankInfo rank_info) {
  check_rank(fmt::format("{}: {}", what, partner_is), partner, rank_info);
  check_memory(what, buffer);
  if (partner == rank_info.rank) {
    throw make_error(Errc::usage, "{}: {} is rank {} itself: a rank cannot send to itself", what, partner_is, partner);
  }
  if (tag < 0) throw make_error(Errc::usage, "{}: tag {} is negative: negative tags are reserved", what, tag);
}

}  // namespace

Call checked_send(ConstSpan buffer, int destination, int tag, RankInfo rank_info, OpOptions options) {
  check_transfer("send", "destination", buffer, destination, tag, rank_info);
  return {{.kind = OpKind::send, .dtype = buffer.dtype, .count = buffer.count, .peer = destination, .tag = tag},
          buffer,
          {},
          options,
          nullptr};
}

Call checked_recv(Span buffer, int source, int tag, RankInfo rank_info, OpOptions options) {
  if (source == any_source) {
    if (rank_info.size == 1) throw make_error(Errc::usage, "recv: a group of one rank has no rank to receive from");
    check_transfer("recv", "source", buffer, rank_info.rank == 0 ? 1 : 0, tag, rank_info);
  } else {
    check_transfer("recv", "source", buffer, source, tag, rank_info);
  }
  return {{.kind = OpKind::recv, .dtype = buffer.dtype, .count = buffer.count, .peer = source, .tag = tag},
          {},
          buffer,
          options,
          nullptr};
}

Call checked_allgather(ConstSpan input, Span output, const Counts* counts, RankInfo rank_info, OpOptions options) {
  return parts_call("allgather", {.kind = OpKind::allgather}, input, output, false, true, counts, rank_info, options);
}

Call checked_reduce_scatter(ConstSpan input, Span output, const Counts* counts, Reduction reduction, RankInfo rank_info,
                            OpOptions options) {
  check_reduction("reduce_scatter", output.dtype, reduction.op);
  return parts_call("reduce_scatter", reducing(OpKind::reduce_scatter, reduction), input, output, true, true, counts,
                    rank_info, options);
}

Call checked_gather(ConstSpan input, Span output, const Counts* counts, int root, RankInfo rank_info,
                    OpOptions options) {
  check_rank("gather: root", root, rank_info);
  return parts_call("gather", {.kind = OpKind::gather, .peer = root}, input, output, false, rank_info.rank == root,
                    counts, rank_info, options);
}

Call checked_scatter(ConstSpan input, Span output, const Counts* counts, int root, RankInfo rank_info,
                     OpOptions options) {
  check_rank("scatter: root", root, rank_info);
  return parts_call("scatter", {.kind = OpKind::scatter, .peer = root}, input, output, true, rank_info.rank == root,
                    counts, rank_info, options);
}

Call checked_all_to_all(ConstSpan input, Span output, RankInfo rank_info, OpOptions options) {
  const auto size = static_cast<std::size_t>(rank_info.size);
  check_same_shape("all_to_all", input, output);
  const auto part = input.count / size;
  if (part * size != input.count) {
    throw make_error(Errc::usage, "all_to_all: {} cannot be divided among {} ranks", text_of(input), size);
  }
  check_memory("all_to_all", input);
  check_memory("all_to_all", output);
  check_apart("all_to_all", input, output, same(input, output));
  return {{.kind = OpKind::all_to_all, .dtype = input.dtype, .count = part}, input, output, options, nullptr};
}

Call checked_all_to_allv(ConstSpan input, const Counts& input_counts, Span output, const Counts& output_counts,
                         RankInfo rank_info, OpOptions options) {
  const auto layout = std::make_shared<Layout>();
  layout->input_parts = std::make_unique<const Parts>(checked_parts("all_to_allv", input_counts, rank_info));
  layout->output_parts = std::make_unique<const Parts>(checked_parts("all_to_allv", output_counts, rank_info));
  check_whole("all_to_allv: input", input, input, layout->input_parts->total());
  check_whole("all_to_allv: output", input, output, layout->output_parts->total());
  check_part("all_to_allv", {nullptr, layout->output_parts->count(rank_info.rank), input.dtype},
             layout->input_parts->count(rank_info.rank), rank_info);
  check_memory("all_to_allv", input);
  check_memory("all_to_allv", output);
  check_apart("all_to_allv", input, output, false);
  return {{.kind = OpKind::all_to_all, .dtype = input.dtype, .count = input.count, .parts = 1},
          input,
          output,
          options,
          layout};
}

void check_timeout(const Operation& operation, std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) return;
  throw make_error(Errc::usage, "{}: a timeout of {} ms is not possible: give 1 ms or more, or none for the group's",
                   describe(operation), timeout.count());
}

Call checked_allreduce(const std::vector<Span>& buffers, Reduction reduction, OpOptions options) {
  for (const auto& buffer : buffers) checked_allreduce(buffer, buffer, reduction, options);
  const std::vector<ConstSpan> inputs(buffers.begin(), buffers.end());
  return coalesced_call(reducing(OpKind::allreduce, reduction), inputs, buffers, inputs, options);
}

Call checked_broadcast(const std::vector<Span>& buffers, int root, RankInfo rank_info, OpOptions options) {
  check_rank("broadcast: root", root, rank_info);
  for (const auto& buffer : buffers) checked_broadcast(buffer, root, rank_info, options);
  const std::vector<ConstSpan> inputs(buffers.begin(), buffers.end());
  return coalesced_call({.kind = OpKind::broadcast, .peer = root}, inputs, buffers, inputs, options);
}

Call checked_allgather(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs, RankInfo rank_info,
                       OpOptions options) {
  check_pairs("allgather", inputs.size(), outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) checked_allgather(inputs[i], outputs[i], nullptr, rank_info, options);
  return coalesced_call({.kind = OpKind::allgather}, inputs, outputs, inputs, options);
}

Call checked_reduce_scatter(const std::vector<ConstSpan>& inputs, const std::vector<Span>& outputs, Reduction reduction,
                            RankInfo rank_info, OpOptions options) {
  check_pairs("reduce_scatter", inputs.size(), outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    checked_reduce_scatter(inputs[i], outputs[i], nullptr, reduction, rank_info, options);
  }
  return coalesced_call(reducing(OpKind::reduce_scatter, reduction), inputs, outputs, {outputs.begin(), outputs.end()},
                        options);
}

}  // namespace ddprun::comm

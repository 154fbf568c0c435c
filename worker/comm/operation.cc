#include "ddprun/worker/comm/operation.h"

#include "ddprun/common/error.h"

namespace ddprun::comm {
namespace {

void check_rank(std::string_view what, int value, int size) {
  if (value < 0 || value >= size) {
    throw make_error(Errc::usage, "{} {} is not a rank of this group, which has {} (0 to {})", what, value, size,
                     size - 1);
  }
}

void check_memory(std::string_view what, ConstSpan span) {
  if (span.count > 0 && !span.data) {
    throw make_error(Errc::usage, "{}: {} elements of {} at a null address", what, span.count,
                     ddprun::name_of(span.dtype));
  }
}

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16;
}

void check_reduction(std::string_view what, DType dtype, ReduceOp op) {
  const auto type = ddprun::name_of(dtype);
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      if (is_float(dtype)) return;
      throw make_error(Errc::usage, "{}: {} of {} would not be whole; sum, then scale as you see fit", what,
                       name_of(op), type);
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      if (!is_float(dtype)) return;
      throw make_error(Errc::usage, "{}: {} is for whole numbers, not for {}", what, name_of(op), type);
    default:
      return;
  }
}

// part: one rank's share; whole: all ranks' shares in rank order.
void check_blocks(std::string_view what, ConstSpan part, ConstSpan whole, int size) {
  if (part.dtype != whole.dtype || whole.count != part.count * static_cast<std::size_t>(size)) {
    throw make_error(Errc::usage, "{}: {} {} a rank and {} ranks need {} {} in all, not {} {}", what, part.count,
                     ddprun::name_of(part.dtype), size, part.count * static_cast<std::size_t>(size),
                     ddprun::name_of(part.dtype), whole.count, ddprun::name_of(whole.dtype));
  }
  check_memory(what, part);
  check_memory(what, whole);
}

void check_partner(std::string_view what, int partner, int rank, int size) {
  check_rank(what, partner, size);
  if (partner == rank) throw make_error(Errc::usage, "{} is rank {} itself: a rank cannot send to itself", what, rank);
}

}  // namespace

std::string_view name_of(OpKind kind) {
  constexpr std::string_view names[] = {"allreduce",      "reduce",  "broadcast", "allgather",
                                        "reduce_scatter", "barrier", "send",      "recv"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"sum",    "average", "product",          "min", "max", "bit_and",
                                        "bit_or", "bit_xor", "premultiplied_sum"};
  return names[static_cast<std::size_t>(op)];
}

bool agree(const Operation& one, const Operation& other) {
  auto same = other;
  same.factor = one.factor;  // each rank has its own
  return one == same;
}

std::string describe(const Operation& operation) {
  const auto name = name_of(operation.kind);
  const auto dtype = ddprun::name_of(operation.dtype);
  switch (operation.kind) {
    case OpKind::allreduce:
    case OpKind::reduce_scatter:
      return fmt::format("{}({}) of {} {}", name, name_of(operation.op), operation.count, dtype);
    case OpKind::reduce:
      return fmt::format("{}({}) of {} {} to rank {}", name, name_of(operation.op), operation.count, dtype,
                         operation.peer);
    case OpKind::broadcast:
      return fmt::format("{} of {} {} from rank {}", name, operation.count, dtype, operation.peer);
    case OpKind::allgather:
      return fmt::format("{} of {} {}", name, operation.count, dtype);
    case OpKind::send:
      return fmt::format("{} of {} {} to rank {} with tag {}", name, operation.count, dtype, operation.peer,
                         operation.tag);
    case OpKind::recv:
      return fmt::format("{} of {} {} from rank {} with tag {}", name, operation.count, dtype, operation.peer,
                         operation.tag);
    case OpKind::barrier:
      break;
  }
  return std::string(name);
}

std::uint16_t signature(const Operation& operation) {
  // FNV-1a, folded. A send and its recv have to agree, so neither kind nor partner counts for them.
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto mix = [&hash](std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((value >> shift) & 0xff)) * 0x100000001b3ull;
  };
  mix(operation.point_to_point() ? 0xff : static_cast<std::uint64_t>(operation.kind));
  mix(static_cast<std::uint64_t>(operation.dtype));
  mix(operation.count);
  mix(static_cast<std::uint64_t>(operation.op));
  if (!operation.point_to_point()) mix(static_cast<std::uint64_t>(operation.peer));
  return static_cast<std::uint16_t>(hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48));
}

Operation checked_allreduce(Span buffer, Reduction reduction) {
  check_memory("allreduce", buffer);
  check_reduction("allreduce", buffer.dtype, reduction.op);
  return {.kind = OpKind::allreduce,
          .dtype = buffer.dtype,
          .count = buffer.count,
          .op = reduction.op,
          .factor = reduction.factor};
}

Operation checked_reduce(Span buffer, int root, Reduction reduction, int size) {
  check_rank("reduce: root", root, size);
  check_memory("reduce", buffer);
  check_reduction("reduce", buffer.dtype, reduction.op);
  return {.kind = OpKind::reduce,
          .dtype = buffer.dtype,
          .count = buffer.count,
          .op = reduction.op,
          .factor = reduction.factor,
          .peer = root};
}

Operation checked_broadcast(Span buffer, int root, int size) {
  check_rank("broadcast: root", root, size);
  check_memory("broadcast", buffer);
  return {.kind = OpKind::broadcast, .dtype = buffer.dtype, .count = buffer.count, .peer = root};
}

Operation checked_allgather(ConstSpan input, Span output, int size) {
  check_blocks("allgather", input, output, size);
  return {.kind = OpKind::allgather, .dtype = input.dtype, .count = input.count};
}

Operation checked_reduce_scatter(ConstSpan input, Span output, Reduction reduction, int size) {
  check_blocks("reduce_scatter", output, input, size);
  check_reduction("reduce_scatter", input.dtype, reduction.op);
  return {.kind = OpKind::reduce_scatter,
          .dtype = output.dtype,
          .count = output.count,
          .op = reduction.op,
          .factor = reduction.factor};
}

Operation checked_send(ConstSpan buffer, int destination, int tag, int rank, int size) {
  check_partner("send: destination", destination, rank, size);
  check_memory("send", buffer);
  return {.kind = OpKind::send, .dtype = buffer.dtype, .count = buffer.count, .peer = destination, .tag = tag};
}

Operation checked_recv(Span buffer, int source, int tag, int rank, int size) {
  check_partner("recv: source", source, rank, size);
  check_memory("recv", buffer);
  return {.kind = OpKind::recv, .dtype = buffer.dtype, .count = buffer.count, .peer = source, .tag = tag};
}

}  // namespace ddprun::comm

#include "worker/comm/backends/staged/staged_call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/rounding.h"

namespace ddprun::comm {
namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) {
  return round_up(bytes, alignment);
}

// Returns whether a part lies in a whole, as the input of an operation in place lies in the output.
bool lies_in(ConstSpan part, ConstSpan whole) {
  if (!part.data || !whole.data) return false;
  const auto* const begin = static_cast<const std::byte*>(whole.data);
  const auto* const data = static_cast<const std::byte*>(part.data);
  return data >= begin && data + part.bytes() <= begin + whole.bytes();
}

std::size_t offset_within(ConstSpan part, ConstSpan whole) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(part.data) - static_cast<const std::byte*>(whole.data));
}

bool is_rooted_to_one(const Operation& operation) {
  return operation.kind == OpKind::reduce || operation.kind == OpKind::gather;
}

// Returns whether a buffer consists of a part for each rank.
bool has_parts(OpKind kind) {
  return kind == OpKind::allgather || kind == OpKind::reduce_scatter || kind == OpKind::gather ||
         kind == OpKind::scatter || kind == OpKind::all_to_all;
}

// Elements [first, first + count) of each part of a buffer.
struct Piece {
  std::size_t first = 0;
  std::size_t count = 0;
};

Piece piece_of(const Operation& operation, const Division& division, std::size_t number) {
  if (division.pieces == 1) return {0, operation.count};
  const auto first = number * division.elements;
  return {first, std::min(division.elements, operation.count - first)};
}

// Places pieces of spans one after the other.
class Planner {
 public:
  Planner(const Operation& operation, Piece piece, RankInfo rank_info, std::byte* staging)
      : piece_(piece),
        part_(operation.count),
        staging_(staging),
        reduces_in_place_(operation.kind == OpKind::allreduce || operation.kind == OpKind::reduce),
        reads_((operation.kind != OpKind::broadcast && operation.kind != OpKind::scatter) ||
               operation.peer == rank_info.rank),
        writes_(is_rooted_to_one(operation)           ? operation.peer == rank_info.rank
                : operation.kind == OpKind::broadcast ? operation.peer != rank_info.rank
                                                      : true) {}

  void place(ConstSpan& input, Span& output, StagedCall& staged) {
    std::size_t in_at = 0, out_at = 0;
    if (lies_in(output, input) && output.bytes() < input.bytes()) {
      in_at = add(input);
      out_at = in_at + in_piece(offset_within(output, input));
    } else if (lies_in(input, output)) {
      out_at = add(output);
      in_at = out_at + in_piece(offset_within(input, output));
    } else if (reduces_in_place_) {
      in_at = out_at = add(input);
    } else {
      out_at = add(output);
      in_at = add(input);
    }
    if (reads_) list(input, in_at, staged.read);
    if (writes_) list(output, out_at, staged.written);
    move_to(input, in_at);
    move_to(output, out_at);
  }

 private:
  bool is_whole() const { return piece_.count == part_; }
  // Returns the piece's share of a number of elements or bytes in whole parts.
  std::size_t in_piece(std::size_t amount) const { return is_whole() ? amount : amount / part_ * piece_.count; }

  std::size_t add(ConstSpan span) {
    return std::exchange(used_, used_ + aligned(in_piece(span.count) * size_of(span.dtype)));
  }
  // Lists one span, or one for each part.
  void list(ConstSpan span, std::size_t at, std::vector<StagedSpan>& spans) const {
    if (span.bytes() == 0) return;
    auto* const device = static_cast<std::byte*>(const_cast<void*>(span.data));
    if (is_whole()) return spans.push_back({device, at, span.bytes()});
    const auto width = size_of(span.dtype), bytes = piece_.count * width;
    for (std::size_t part = 0; part < span.count / part_; ++part)
      spans.push_back({device + (part * part_ + piece_.first) * width, at + part * bytes, bytes});
  }
  template <class AnySpan>
  void move_to(AnySpan& span, std::size_t at) const {
    span.device = host_memory;
    span.count = in_piece(span.count);
    if (span.data) span.data = staging_ + at;
  }

  const Piece piece_;
  const std::size_t part_;  // elements of a part
  std::byte* const staging_;
  const bool reduces_in_place_, reads_, writes_;
  std::size_t used_ = 0;
};

Layout copy_of(const Layout& layout) {
  const auto parts = [](const auto& own) {
    return own ? std::make_unique<const Parts>(own->counts()) : std::unique_ptr<const Parts>();
  };
  return {parts(layout.input_parts), parts(layout.output_parts), layout.inputs, layout.outputs};
}

}  // namespace

Division divide(const Call& call, int ranks, std::size_t piece_bytes, bool reduces_alike) {
  const auto& operation = call.operation;
  const bool whole = operation.coalesced() || operation.unequal() || (operation.reduces() && !reduces_alike);
  const auto parts = has_parts(operation.kind) ? static_cast<std::size_t>(ranks) : std::size_t{1};
  constexpr std::size_t step = 64;  // elements: copies begin at aligned addresses
  const auto fitting = std::max<std::size_t>(1, piece_bytes / parts / size_of(operation.dtype));
  const auto elements = fitting < step ? fitting : fitting / step * step;
  if (whole || operation.count <= elements) return {1, operation.count};
  return {divide_up(operation.count, elements), elements};
}

std::size_t staging_bytes(const Call& call, const Division& division) {
  const auto bytes = [&](ConstSpan span) {
    if (division.pieces == 1) return aligned(span.bytes());
    return aligned(span.count / call.operation.count * division.elements * size_of(span.dtype));
  };
  if (!call.operation.coalesced()) return bytes(call.input) + bytes(call.output);
  std::size_t sum = 0;
  for (const auto& each : call.layout->inputs) sum += bytes(each);
  for (const auto& each : call.layout->outputs) sum += bytes(each);
  return sum;
}

StagedCall plan_staged_call(const Call& call, const Division& division, std::size_t number, RankInfo rank_info,
                            std::byte* staging) {
  const auto piece = piece_of(call.operation, division, number);
  Planner planner(call.operation, piece, rank_info, staging);
  StagedCall staged{.call = call, .read = {}, .written = {}};
  staged.call.options.blocking = false;
  staged.call.options.after = nullptr;
  if (!call.operation.coalesced()) {
    planner.place(staged.call.input, staged.call.output, staged);
    staged.call.operation.count = piece.count;
    if (division.pieces > 1) staged.call.operation.layout = call.operation.count;
    return staged;
  }
  auto layout = std::make_shared<Layout>(copy_of(*call.layout));
  for (std::size_t i = 0; i < layout->outputs.size(); ++i) planner.place(layout->inputs[i], layout->outputs[i], staged);
  staged.call.layout = std::move(layout);
  return staged;
}

}  // namespace ddprun::comm

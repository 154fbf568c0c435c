#include "ddprun/worker/comm/backends/staged/staged_call.h"

#include <utility>

namespace ddprun::comm {
namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Lies in the output, as the input of an operation in place does.
bool lies_in(ConstSpan part, ConstSpan whole) {
  if (!part.data || !whole.data) return false;
  const auto* const begin = static_cast<const std::byte*>(whole.data);
  const auto* const data = static_cast<const std::byte*>(part.data);
  return data >= begin && data + part.bytes() <= begin + whole.bytes();
}

bool is_rooted_to_one(const Operation& operation) {
  return operation.kind == OpKind::reduce || operation.kind == OpKind::gather;
}

// Places spans one after the other.
class Planner {
 public:
  Planner(const Operation& operation, RankInfo rank_info, std::byte* staging)
      : staging_(staging),
        reads_((operation.kind != OpKind::broadcast && operation.kind != OpKind::scatter) ||
               operation.peer == rank_info.rank),
        writes_(is_rooted_to_one(operation)           ? operation.peer == rank_info.rank
                : operation.kind == OpKind::broadcast ? operation.peer != rank_info.rank
                                                      : true) {}

  void place(ConstSpan& input, Span& output, StagedCall& staged) {
    if (lies_in(output, input) && output.bytes() < input.bytes()) {
      const auto inner = offset_within(output, input);
      const auto at = add(input);
      read(input, at, staged);
      write(output, at + inner, staged);
      move_to(input, at);
      move_to(output, at + inner);
      return;
    }
    const bool in_place = lies_in(input, output);
    const auto inner = in_place ? offset_within(input, output) : 0;
    const auto out_at = add(output);
    const auto in_at = in_place ? out_at + inner : add(input);
    read(input, in_at, staged);
    write(output, out_at, staged);
    move_to(input, in_at);
    move_to(output, out_at);
  }

 private:
  static std::size_t offset_within(ConstSpan part, ConstSpan whole) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(part.data) -
                                    static_cast<const std::byte*>(whole.data));
  }
  std::size_t add(ConstSpan span) { return std::exchange(used_, used_ + aligned(span.bytes())); }
  void read(ConstSpan span, std::size_t at, StagedCall& staged) const {
    if (reads_ && span.bytes() > 0) staged.read.push_back({const_cast<void*>(span.data), at, span.bytes()});
  }
  void write(Span span, std::size_t at, StagedCall& staged) const {
    if (writes_ && span.bytes() > 0) staged.written.push_back({span.data, at, span.bytes()});
  }
  template <class AnySpan>
  void move_to(AnySpan& span, std::size_t at) const {
    span.device = host_memory;
    if (span.data) span.data = staging_ + at;
  }

  std::byte* const staging_;
  const bool reads_, writes_;
  std::size_t used_ = 0;
};

Layout copy_of(const Layout& layout) {
  const auto parts = [](const auto& own) {
    return own ? std::make_unique<const Parts>(own->counts()) : std::unique_ptr<const Parts>();
  };
  return {parts(layout.input_parts), parts(layout.output_parts), layout.inputs, layout.outputs};
}

}  // namespace

std::size_t staging_bytes(const Call& call) {
  if (!call.operation.coalesced()) return aligned(call.input.bytes()) + aligned(call.output.bytes());
  std::size_t sum = 0;
  for (const auto& each : call.layout->inputs) sum += aligned(each.bytes());
  for (const auto& each : call.layout->outputs) sum += aligned(each.bytes());
  return sum;
}

StagedCall plan_staged_call(const Call& call, RankInfo rank_info, std::byte* staging) {
  Planner planner(call.operation, rank_info, staging);
  StagedCall staged{.call = call, .read = {}, .written = {}};
  if (!call.operation.coalesced()) {
    planner.place(staged.call.input, staged.call.output, staged);
    return staged;
  }
  auto layout = std::make_shared<Layout>(copy_of(*call.layout));
  for (std::size_t i = 0; i < layout->outputs.size(); ++i) planner.place(layout->inputs[i], layout->outputs[i], staged);
  staged.call.layout = std::move(layout);
  return staged;
}

bool is_elementwise(const Call& call) {
  const auto kind = call.operation.kind;
  return !call.operation.coalesced() &&
         (kind == OpKind::allreduce || kind == OpKind::reduce || kind == OpKind::broadcast);
}

}  // namespace ddprun::comm

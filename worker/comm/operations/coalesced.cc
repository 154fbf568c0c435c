#include <algorithm>
#include <cstring>
#include <vector>

#include "worker/comm/operations/composed.h"

namespace ddprun::comm {
namespace {

// Spans larger than this are not packed; packs are not larger.
constexpr std::size_t pack_bytes = std::size_t{1} << 20;

// Spans [begin, end) of a collective, of one type. A span's unit has the same size at every rank: the input of
// allgather, the output of the others; allgather's outputs and reduce_scatter's inputs consist of size() units.
class Pack {
 public:
  Pack(const Collective& collective, std::size_t begin, std::size_t end, RankInfo rank_info)
      : collective_(collective), begin_(begin), end_(end), rank_info_(rank_info) {}

  // Executes them as one collective, packed into memory of its own unless it is a single span.
  void execute(const ExecuteOne& execute_one) {
    auto one = as_one();
    if (end_ - begin_ > 1) {
      one.input = pack_inputs();
      one.output = allocate_outputs(one.input);
      execute_one(one);
      unpack_outputs(one.output);
    } else if (one.operation.count > 0) {
      execute_one(one);
    }
  }

 private:
  OpKind kind() const { return collective_.operation.kind; }
  std::size_t size() const { return static_cast<std::size_t>(rank_info_.size); }
  ConstSpan input(std::size_t i) const { return collective_.layout->inputs[i]; }
  Span output(std::size_t i) const { return collective_.layout->outputs[i]; }
  ConstSpan unit(std::size_t i) const { return kind() == OpKind::allgather ? input(i) : ConstSpan(output(i)); }

  std::size_t total() const {
    std::size_t count = 0;
    for (auto i = begin_; i < end_; ++i) count += unit(i).count;
    return count;
  }

  Collective as_one() const {
    Collective one = collective_;
    one.layout = nullptr;
    one.operation.spans = 0;
    one.operation.layout = 0;
    one.operation.dtype = unit(begin_).dtype;
    one.operation.count = total();
    one.input = input(begin_);
    one.output = output(begin_);
    return one;
  }

  // Calls move(offset in the pack, span, offset in the span, bytes) for every unit: first unit 0 of all spans, then
  // unit 1, and so on.
  template <class Move>
  void for_each_unit(std::size_t units, Move move) const {
    std::size_t at = 0;
    for (std::size_t u = 0; u < units; ++u) {
      for (auto i = begin_; i < end_; ++i) {
        const auto bytes = unit(i).bytes();
        if (bytes > 0) move(at, i, u * bytes, bytes);
        at += bytes;
      }
    }
  }

  ConstSpan pack_inputs() {
    const auto units = kind() == OpKind::reduce_scatter ? size() : 1;
    const auto dtype = unit(begin_).dtype;
    inputs_.resize(total() * size_of(dtype) * units);
    if (kind() != OpKind::broadcast || collective_.operation.peer == rank_info_.rank) {
      for_each_unit(units, [&](std::size_t at, std::size_t i, std::size_t first, std::size_t bytes) {
        std::memcpy(inputs_.data() + at, static_cast<const std::byte*>(input(i).data) + first, bytes);
      });
    }
    return {inputs_.data(), total() * units, dtype};
  }

  Span allocate_outputs(ConstSpan packed) {
    if (kind() == OpKind::allreduce || kind() == OpKind::broadcast) return {inputs_.data(), packed.count, packed.dtype};
    const auto count = kind() == OpKind::allgather ? total() * size() : total();
    outputs_.resize(count * size_of(packed.dtype));
    return {outputs_.data(), count, packed.dtype};
  }

  void unpack_outputs(ConstSpan packed) const {
    if (kind() == OpKind::broadcast && collective_.operation.peer == rank_info_.rank) return;
    const auto units = kind() == OpKind::allgather ? size() : 1;
    for_each_unit(units, [&](std::size_t at, std::size_t i, std::size_t first, std::size_t bytes) {
      std::memcpy(static_cast<std::byte*>(output(i).data) + first, static_cast<const std::byte*>(packed.data) + at,
                  bytes);
    });
  }

  const Collective& collective_;
  const std::size_t begin_, end_;
  const RankInfo rank_info_;
  std::vector<std::byte> inputs_, outputs_;
};

}  // namespace

void execute_coalesced(const Collective& collective, RankInfo rank_info, const ExecuteOne& execute_one) {
  const auto& layout = *collective.layout;
  const auto unit = [&](std::size_t i) {
    return collective.operation.kind == OpKind::allgather ? layout.inputs[i] : ConstSpan(layout.outputs[i]);
  };
  for (std::size_t begin = 0, end = 0; begin < layout.outputs.size(); begin = end) {
    std::size_t packed = unit(begin).bytes();
    for (end = begin + 1; end < layout.outputs.size(); ++end) {
      if (unit(end).dtype != unit(begin).dtype || packed + unit(end).bytes() > pack_bytes) break;
      packed += unit(end).bytes();
    }
    Pack(collective, begin, end, rank_info).execute(execute_one);
  }
}

}  // namespace ddprun::comm

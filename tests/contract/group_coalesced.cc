#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {
namespace {

// Spans of several types: small ones, and one that is too large to be packed.
struct Spans {
  explicit Spans(int rank)
      : doubles(3, rank + 1),
        large(400'001, static_cast<float>(rank + 1)),
        bytes(5, static_cast<std::uint8_t>(rank + 1)) {}
  std::vector<Span> list() {
    const Span first{doubles.data(), 1, DType::float64}, rest{doubles.data() + 1, 2, DType::float64};
    return {first, rest, span_of(large), {nullptr, 0, DType::int32}, span_of(bytes)};
  }
  bool operator==(const Spans&) const = default;

  std::vector<double> doubles;
  std::vector<float> large;
  std::vector<std::uint8_t> bytes;
};

}  // namespace

void coalesced_spans_are_one_operation(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    Spans spans(group.rank());
    group.allreduce_coalesced(spans.list(), ReduceOp::sum)->wait();
    for (std::size_t i = 0; i < spans.doubles.size(); ++i)
      expect(spans.doubles[i] == (size * (size + 1)) / 2, "doubles");
    expect(spans.large == std::vector<float>(spans.large.size(), static_cast<float>(size * (size + 1)) / 2), "large");
    expect(spans.bytes == std::vector<std::uint8_t>(5, static_cast<std::uint8_t>(size * (size + 1) / 2)), "bytes");

    Spans others(group.rank());
    group.broadcast_coalesced(others.list(), size - 1)->wait();
    expect(others == Spans(size - 1), "the root's values");
    group.allreduce_coalesced({})->wait();
    group.broadcast_coalesced({Span{}, Span{}}, 0)->wait();
  });
}

void coalesced_parts_are_placed_in_rank_order(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  const auto ranks = static_cast<std::size_t>(size);
  run_ranks(groups, [&](ProcessGroup& group) {
    constexpr std::size_t counts[] = {3, 0, 1001, 200'001, 1};
    std::vector<std::vector<std::int64_t>> parts, wholes, reduced;
    std::vector<ConstSpan> inputs, whole_inputs;
    std::vector<Span> outputs, reduced_outputs;
    for (const auto count : counts) {
      parts.push_back(message(group.rank(), 0, count));
      wholes.emplace_back(count * ranks, -1);
      reduced.emplace_back(count, -1);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      inputs.push_back(span_of(parts[i]));
      outputs.push_back(span_of(wholes[i]));
      whole_inputs.push_back(span_of(wholes[i]));
      reduced_outputs.push_back(span_of(reduced[i]));
    }
    group.allgather_coalesced(inputs, outputs)->wait();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t at = 0; at < wholes[i].size(); ++at) {
        expect(wholes[i][at] == value(static_cast<int>(at / counts[i]), 0, at % counts[i]), "allgather");
      }
    }
    group.reduce_scatter_coalesced(whole_inputs, reduced_outputs, ReduceOp::sum)->wait();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t at = 0; at < counts[i]; ++at) {
        expect(reduced[i][at] == size * value(group.rank(), 0, at), "reduce_scatter");
      }
    }

    // The operation is in place: a rank's parts lie within the wholes.
    std::vector<Span> own;
    for (std::size_t i = 0; i < wholes.size(); ++i)
      own.push_back({wholes[i].data() + counts[i] * static_cast<std::size_t>(group.rank()), counts[i], DType::int64});
    group.reduce_scatter_coalesced(whole_inputs, own, ReduceOp::sum)->wait();
    group.allgather_coalesced({own.begin(), own.end()}, outputs)->wait();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t at = 0; at < wholes[i].size(); ++at)
        expect(wholes[i][at] == size * value(static_cast<int>(at / counts[i]), 0, at % counts[i]), "in place");
    }
  });
}

}  // namespace ddprun::contract

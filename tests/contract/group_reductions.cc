#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include <fmt/core.h>

#include "common/float16.h"
#include "worker/comm/operations/operation.h"
#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"
#include "tests/support/thread_group.h"

namespace ddprun::contract {
namespace {

// The factor of a premultiplied sum: differs between ranks, and every type represents it exactly.
Reduction reduction_of(ReduceOp op, int rank) {
  return op == ReduceOp::premultiplied_sum ? Reduction::premultiplied_sum(rank % 2 ? 0.5 : 2) : Reduction(op);
}

// Returns whether the back end implements it; otherwise the call throws. The back end's own test checks which.
bool offers(ProcessGroup& group, ReduceOp op, DType dtype) {
  try {
    group.allreduce(Span{nullptr, 0, dtype}, reduction_of(op, group.rank()))->wait();
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    return false;
  }
}

// Returns the oracle's result: the same call on a thread group.
std::vector<std::vector<std::byte>> expected_allreduce(DType dtype, ReduceOp op, std::size_t count, int size) {
  auto oracle = testing::make_thread_groups(size);
  std::vector<std::vector<std::byte>> results;
  for (int r = 0; r < size; ++r) results.push_back(small_values(dtype, count, r));
  std::vector<WorkPtr> works;
  for (int r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    works.push_back(oracle[at]->allreduce(typed(results[at], dtype), reduction_of(op, r)));
  }
  for (auto& work : works) work->wait();
  return results;
}

std::string label(DType dtype, ReduceOp op, std::size_t count) {
  return fmt::format("{} {} x {}", comm::name_of(op), name_of(dtype), count);
}

// A call, and the result of an allreduce of its input.
struct Case {
  DType dtype;
  ReduceOp op;
  std::size_t count;
  std::vector<std::byte> expected;
};

// Returns every reduction of every type. The input has parts times count elements.
std::vector<Case> all_cases(int size, std::size_t parts) {
  std::vector<Case> cases;
  const auto add = [&](DType dtype, ReduceOp op, std::size_t count) {
    cases.push_back({dtype, op, count, expected_allreduce(dtype, op, count * parts, size)[0]});
  };
  for (const auto dtype : all_types) {
    for (const auto op : all_ops) {
      if (!fits(op, dtype)) continue;
      for (const std::size_t count : {1, 7, 1001}) add(dtype, op, count);
    }
  }
  for (const auto dtype : {DType::float32, DType::bfloat16}) add(dtype, ReduceOp::sum, 70'001);
  return cases;
}

}  // namespace

void allreduce_combines_every_type(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  const auto cases = all_cases(size, 1);
  run_ranks(groups, [&](ProcessGroup& group) {
    for (const auto& [dtype, op, count, expected] : cases) {
      if (!offers(group, op, dtype)) continue;
      auto values = small_values(dtype, count, group.rank());
      group.allreduce(typed(values, dtype), reduction_of(op, group.rank()))->wait();
      expect(values == expected, label(dtype, op, count));
    }
  });
}

void allreduce_does_not_change_its_input(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const std::size_t count : {7u, 70'001u}) {
    for (const auto op : {ReduceOp::sum, ReduceOp::premultiplied_sum}) {
      const auto expected = expected_allreduce(DType::float32, op, count, size)[0];
      run_ranks(groups, [&](ProcessGroup& group) {
        const auto input = small_values(DType::float32, count, group.rank());
        const auto before = input;
        std::vector<std::byte> output(input.size());
        const auto reduction = reduction_of(op, group.rank());
        group.allreduce(typed(input, DType::float32), typed(output, DType::float32), reduction)->wait();
        expect(output == expected, label(DType::float32, op, count));
        expect(input == before, "the input is only read");
      });
    }
  }
}

void allreduce_results_are_bit_identical(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const std::size_t count : {5u, 4'099u, 300'007u}) {
    std::vector<std::vector<float>> results(groups.size());
    std::vector<double> exact(count, 0.0);
    for (int r = 0; r < size; ++r) {
      std::mt19937 random(static_cast<unsigned>(r));
      auto& values = results[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
        exact[i] += static_cast<double>(values.back());
      }
    }
    run_ranks(groups, [&](ProcessGroup& group) {
      group.allreduce(span_of(results[static_cast<std::size_t>(group.rank())]), ReduceOp::sum)->wait();
    });
    for (const auto& result : results) {
      expect(std::memcmp(result.data(), results[0].data(), count * sizeof(float)) == 0, "equal bits at all ranks");
    }
    for (std::size_t i = 0; i < count; ++i) {
      // Each addition of numbers below 8 has an error of at most half a unit in the last place, 2^-22.
      expect(std::abs(static_cast<double>(results[0][i]) - exact[i]) <= (size - 1) * 0x1p-22, "the sum");
    }
  }
}

// 229 * 39 = 8931 is 8960 in bfloat16: rounding it first changes the sum for every number of ranks.
void premultiplied_halves_are_rounded_once(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  const auto ranks = static_cast<std::size_t>(size);
  constexpr std::size_t part = 700;
  const auto expected = bfloat16_from_float(229.0f + static_cast<float>(size - 1) * 8931);
  const auto span = [](std::vector<std::uint16_t>& values) {
    return Span{values.data(), values.size(), DType::bfloat16};
  };
  run_ranks(groups, [&](ProcessGroup& group) {
    const auto factor = Reduction::premultiplied_sum(group.rank() == 0 ? 1 : 39);
    const std::vector<std::uint16_t> input(ranks * part, bfloat16_from_float(229));
    auto in_place = input, to_root = input, parts = input;
    std::vector<std::uint16_t> own(part);
    group.allreduce(span(in_place), factor)->wait();
    group.reduce(span(to_root), 0, factor)->wait();
    group.reduce_scatter(span(parts), span(own), factor)->wait();
    expect(in_place == std::vector(ranks * part, expected), "allreduce");
    expect(to_root == (group.rank() == 0 ? std::vector(ranks * part, expected) : input), "reduce");
    expect(own == std::vector(part, expected), "reduce_scatter");
    expect(parts == input, "the input is only read");
  });
}

void coalesced_spans_take_every_reduction(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  const auto cases = all_cases(size, 1);
  run_ranks(groups, [&](ProcessGroup& group) {
    for (const auto& [dtype, op, count, expected] : cases) {
      if (!offers(group, op, dtype)) continue;
      auto one = small_values(dtype, count, group.rank()), other = one;
      group.allreduce_coalesced({typed(one, dtype), typed(other, dtype)}, reduction_of(op, group.rank()))->wait();
      expect(one == expected && other == expected, label(dtype, op, count));
    }
  });
}

void reduce_combines_at_the_root(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  const auto cases = all_cases(size, 1);
  run_ranks(groups, [&](ProcessGroup& group) {
    int root = 0;
    for (const auto& [dtype, op, count, expected] : cases) {
      if (!offers(group, op, dtype)) continue;
      root = (root + 1) % size;
      auto values = small_values(dtype, count, group.rank());
      const auto before = values;
      group.reduce(typed(values, dtype), root, reduction_of(op, group.rank()))->wait();
      if (group.rank() == root) {
        expect(values == expected, label(dtype, op, count));
      } else {
        expect(values == before, "the others' buffers are only read");
      }
    }
  });
}

void reduce_works_apart_from_its_input(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (int root = 0; root < size; ++root) {
    for (const auto op : {ReduceOp::max, ReduceOp::premultiplied_sum}) {
      const auto expected = expected_allreduce(DType::float64, op, 1001, size)[0];
      run_ranks(groups, [&](ProcessGroup& group) {
        const auto input = small_values(DType::float64, 1001, group.rank());
        const auto before = input;
        std::vector<std::byte> output(group.rank() == root ? input.size() : 0);
        const auto reduction = reduction_of(op, group.rank());
        group.reduce(typed(input, DType::float64), typed(output, DType::float64), root, reduction)->wait();
        expect(group.rank() != root || output == expected, label(DType::float64, op, 1001));
        expect(input == before, "the input is only read");
      });
    }
  }
}

void reduce_scatter_returns_each_ranks_block(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  const auto cases = all_cases(size, static_cast<std::size_t>(size));
  run_ranks(groups, [&](ProcessGroup& group) {
    for (const auto& [dtype, op, count, expected] : cases) {
      if (!offers(group, op, dtype)) continue;
      const auto input = small_values(dtype, count * static_cast<std::size_t>(size), group.rank());
      const auto before = input;
      std::vector<std::byte> output(count * size_of(dtype));
      group.reduce_scatter(typed(input, dtype), typed(output, dtype), reduction_of(op, group.rank()))->wait();
      const auto* block = expected.data() + output.size() * static_cast<std::size_t>(group.rank());
      expect(std::memcmp(output.data(), block, output.size()) == 0, label(dtype, op, count));
      expect(input == before, "the input is only read");
    }
  });
}

void reduce_scatterv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const std::size_t scale : {2u, 30u, 60'000u}) {
    const auto counts = uneven_counts(size, scale);
    std::size_t total = 0;
    for (const auto count : counts) total += count;
    for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::premultiplied_sum}) {
      const auto expected = expected_allreduce(DType::float32, op, total, size)[0];
      run_ranks(groups, [&](ProcessGroup& group) {
        const auto own = static_cast<std::size_t>(group.rank());
        const auto first = std::accumulate(counts.begin(), counts.begin() + group.rank(), std::size_t{0});
        auto input = small_values(DType::float32, total, group.rank());
        std::vector<std::byte> output(counts[own] * 4);
        const auto reduction = reduction_of(op, group.rank());
        group.reduce_scatterv(typed(input, DType::float32), typed(output, DType::float32), counts, reduction)->wait();
        expect(std::equal(output.begin(), output.end(), expected.begin() + static_cast<std::ptrdiff_t>(first * 4)),
               fmt::format("{} of parts like {}", comm::name_of(op), scale));
        const Span part{input.data() + first * 4, counts[own], DType::float32};
        group.reduce_scatterv(typed(input, DType::float32), part, counts, reduction)->wait();
        expect(std::equal(output.begin(), output.end(), input.begin() + static_cast<std::ptrdiff_t>(first * 4)),
               "the same in place");
      });
    }
  }
}

}  // namespace ddprun::contract

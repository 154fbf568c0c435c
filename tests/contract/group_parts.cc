#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {
namespace {

std::size_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void append(std::vector<std::int64_t>& values, const std::vector<std::int64_t>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

Span part_of(std::vector<std::int64_t>& values, const Counts& counts, int rank) {
  const auto first = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  return {values.data() + first, counts[static_cast<std::size_t>(rank)], DType::int64};
}

}  // namespace

void broadcast_gives_the_roots_values(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : lengths) {
      run_ranks(groups, [&](ProcessGroup& group) {
        std::vector<std::int64_t> values(count, group.rank());
        group.broadcast(span_of(values), root)->wait();
        expect(values == std::vector<std::int64_t>(count, root), fmt::format("root {} x {}", root, count));
      });
    }
  }
}

void allgather_orders_by_rank(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t count : lengths) {
    run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<std::int32_t> input(count, 100 + group.rank());
      std::vector<std::int32_t> output(count * static_cast<std::size_t>(size), -1);
      group.allgather(span_of(input), span_of(output))->wait();
      for (std::size_t i = 0; i < output.size(); ++i) {
        expect(output[i] == 100 + static_cast<int>(i / count), fmt::format("element {} of {}", i, output.size()));
      }
    });
  }
}

void allgatherv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t scale : {2u, 30u, 60'000u}) {
    const auto counts = uneven_counts(size, scale);
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto own = static_cast<std::size_t>(group.rank());
      auto input = message(group.rank(), 0, counts[own]);
      std::vector<std::int64_t> output(total(counts), -1), expected;
      for (int r = 0; r < size; ++r) append(expected, message(r, 0, counts[static_cast<std::size_t>(r)]));
      group.allgatherv(span_of(input), span_of(output), counts)->wait();
      expect(output == expected, fmt::format("parts like {}", scale));

      std::vector<std::int64_t> in_place(total(counts), -1);
      const auto part = part_of(in_place, counts, group.rank());
      std::copy(input.begin(), input.end(), static_cast<std::int64_t*>(part.data));
      group.allgatherv(part, span_of(in_place), counts)->wait();
      expect(in_place == expected, fmt::format("in place, parts like {}", scale));
    });
  }
}

void gather_brings_parts_to_the_root(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : {1u, 1001u, 70'001u}) {
      run_ranks(groups, [&](ProcessGroup& group) {
        const auto input = message(group.rank(), 0, count);
        std::vector<std::int64_t> output, expected;
        if (group.rank() == root) output.resize(count * static_cast<std::size_t>(size), -1);
        for (int r = 0; r < size; ++r) append(expected, message(r, 0, count));
        group.gather(span_of(input), span_of(output), root)->wait();
        expect(group.rank() != root || output == expected, fmt::format("{} to {}", count, root));
      });
    }
  }
}

void gatherv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t scale : {2u, 30u, 60'000u}) {
    const auto counts = uneven_counts(size, scale);
    const int root = size - 1;
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto input = message(group.rank(), 0, counts[static_cast<std::size_t>(group.rank())]);
      std::vector<std::int64_t> output, expected;
      for (int r = 0; r < size; ++r) append(expected, message(r, 0, counts[static_cast<std::size_t>(r)]));
      if (group.rank() != root) {
        group.gatherv(span_of(input), {}, counts, root)->wait();
        return;
      }
      output.resize(expected.size(), -1);
      const auto part = part_of(output, counts, root);  // the root's input lies where it belongs
      std::copy(input.begin(), input.end(), static_cast<std::int64_t*>(part.data));
      group.gatherv(part, span_of(output), counts, root)->wait();
      expect(output == expected, fmt::format("parts like {}", scale));
    });
  }
}

void scatter_deals_the_roots_parts(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : {1u, 1001u, 70'001u}) {
      run_ranks(groups, [&](ProcessGroup& group) {
        std::vector<std::int64_t> input, output(count, -1);
        for (int r = 0; r < size && group.rank() == root; ++r) append(input, message(root, r, count));
        group.scatter(span_of(input), span_of(output), root)->wait();
        expect(output == message(root, group.rank(), count), fmt::format("{} from {}", count, root));
      });
    }
  }
}

void scatterv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t scale : {2u, 30u, 60'000u}) {
    const auto counts = uneven_counts(size, scale);
    const int root = size / 2;
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto own = counts[static_cast<std::size_t>(group.rank())];
      const auto expected = message(root, group.rank(), own);
      std::vector<std::int64_t> input, output(own, -1);
      if (group.rank() != root) {
        group.scatterv({}, counts, span_of(output), root)->wait();
        expect(output == expected, fmt::format("parts like {}", scale));
        return;
      }
      for (int r = 0; r < size; ++r) append(input, message(root, r, counts[static_cast<std::size_t>(r)]));
      const auto part = part_of(input, counts, root);
      group.scatterv(span_of(input), counts, part, root)->wait();
      expect(std::equal(expected.begin(), expected.end(), static_cast<std::int64_t*>(part.data)),
             "the root's, in place");
    });
  }
}

void all_to_all_exchanges_parts(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t count : {1u, 63u, 40'001u}) {
    run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<std::int64_t> input, expected;
      for (int r = 0; r < size; ++r) append(input, message(group.rank(), r, count));
      for (int r = 0; r < size; ++r) append(expected, message(r, group.rank(), count));
      const auto before = input;
      std::vector<std::int64_t> output(input.size(), -1);
      group.all_to_all(span_of(input), span_of(output))->wait();
      expect(output == expected, fmt::format("{} a part", count));
      expect(input == before, "the input is only read");
      group.all_to_all(span_of(input), span_of(input))->wait();
      expect(input == expected, fmt::format("in place, {} a part", count));
    });
  }
}

void all_to_allv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t scale : {2u, 30u, 30'000u}) {
    const auto count = [&](int from, int to) { return uneven((from + 2 * to) % size, size, scale); };
    run_ranks(groups, [&](ProcessGroup& group) {
      Counts sent, received;
      std::vector<std::int64_t> input, expected;
      for (int r = 0; r < size; ++r) {
        sent.push_back(count(group.rank(), r));
        received.push_back(count(r, group.rank()));
        append(input, message(group.rank(), r, sent.back()));
        append(expected, message(r, group.rank(), received.back()));
      }
      std::vector<std::int64_t> output(expected.size(), -1);
      group.all_to_allv(span_of(input), sent, span_of(output), received)->wait();
      expect(output == expected, fmt::format("parts like {}", scale));
    });
  }
}

void reduce_scatter_and_allgather_work_in_place(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for (const std::size_t count : {3u, 1001u, 70'001u}) {
    run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<std::int64_t> values, expected;
      for (int r = 0; r < size; ++r) append(values, message(0, r, count));
      for (const auto each : values) expected.push_back(size * each);
      const Counts counts(static_cast<std::size_t>(size), count);
      const auto own = part_of(values, counts, group.rank());
      group.reduce_scatter(span_of(values), own)->wait();
      group.allgather(own, span_of(values))->wait();
      expect(values == expected, fmt::format("{} a part", count));
    });
  }
}

}  // namespace ddprun::contract

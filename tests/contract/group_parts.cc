#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "worker/comm/collectives.h"
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

void broadcast_copies_the_roots_values(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
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
  auto groups = make(size, test_timeout);
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
  auto groups = make(size, test_timeout);
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

void gather_collects_parts_at_the_root(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : {1u, 1001u, 70'001u}) {
      run_ranks(groups, [&](ProcessGroup& group) {
        const auto input = message(group.rank(), 0, count);
        std::vector<std::int64_t> output, expected;
        if (group.rank() == root) output.resize(count * static_cast<std::size_t>(size), -1);
        for (int r = 0; r < size; ++r) append(expected, message(r, 0, count));
        group.gather(span_of(input), span_of(output), root)->wait();
        expect(group.rank() != root || output == expected, fmt::format("{} to {}", count, root));

        std::vector<std::int64_t> in_place(output.size(), -1);
        if (group.rank() != root) return group.gather(span_of(input), {}, root)->wait();
        const auto part = part_of(in_place, Counts(static_cast<std::size_t>(size), count), root);
        std::copy(input.begin(), input.end(), static_cast<std::int64_t*>(part.data));
        group.gather(part, span_of(in_place), root)->wait();
        expect(in_place == expected, fmt::format("in place, {} to {}", count, root));
      });
    }
  }
}

void gatherv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
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
      group.gatherv(span_of(input), span_of(output), counts, root)->wait();
      expect(output == expected, fmt::format("parts like {}", scale));
    });
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto input = message(group.rank(), 0, counts[static_cast<std::size_t>(group.rank())]);
      if (group.rank() != root) return group.gatherv(span_of(input), {}, counts, root)->wait();
      std::vector<std::int64_t> output(total(counts), -1), expected;
      for (int r = 0; r < size; ++r) append(expected, message(r, 0, counts[static_cast<std::size_t>(r)]));
      const auto part = part_of(output, counts, root);  // the root's input is its part of the output
      std::copy(input.begin(), input.end(), static_cast<std::int64_t*>(part.data));
      group.gatherv(part, span_of(output), counts, root)->wait();
      expect(output == expected, fmt::format("in place, parts like {}", scale));
    });
  }
}

void scatter_distributes_the_roots_parts(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (int root = 0; root < size; ++root) {
    for (const std::size_t count : {1u, 1001u, 70'001u}) {
      run_ranks(groups, [&](ProcessGroup& group) {
        std::vector<std::int64_t> input, output(count, -1);
        for (int r = 0; r < size && group.rank() == root; ++r) append(input, message(root, r, count));
        group.scatter(span_of(input), span_of(output), root)->wait();
        const auto expected = message(root, group.rank(), count);
        expect(output == expected, fmt::format("{} from {}", count, root));

        if (group.rank() != root) {
          output.assign(count, -1);
          group.scatter({}, span_of(output), root)->wait();
          expect(output == expected, fmt::format("{} from {} in place", count, root));
          return;
        }
        const auto part = part_of(input, Counts(static_cast<std::size_t>(size), count), root);
        group.scatter(span_of(input), part, root)->wait();
        expect(std::equal(expected.begin(), expected.end(), static_cast<std::int64_t*>(part.data)),
               fmt::format("in place, {} from {}", count, root));
      });
    }
  }
}

void scatterv_takes_unequal_parts(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const std::size_t scale : {2u, 30u, 60'000u}) {
    const auto counts = uneven_counts(size, scale);
    const int root = size / 2;
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto own = counts[static_cast<std::size_t>(group.rank())];
      const auto expected = message(root, group.rank(), own);
      std::vector<std::int64_t> input, output(own, -1);
      for (int r = 0; r < size && group.rank() == root; ++r)
        append(input, message(root, r, counts[static_cast<std::size_t>(r)]));
      group.scatterv(span_of(input), counts, span_of(output), root)->wait();
      expect(output == expected, fmt::format("parts like {}", scale));

      if (group.rank() != root) return group.scatterv({}, counts, span_of(output), root)->wait();
      const auto part = part_of(input, counts, root);
      group.scatterv(span_of(input), counts, part, root)->wait();
      expect(std::equal(expected.begin(), expected.end(), static_cast<std::int64_t*>(part.data)),
             "the root's, in place");
    });
  }
}

void all_to_all_exchanges_parts(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
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
  auto groups = make(size, test_timeout);
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
  auto groups = make(size, test_timeout);
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

namespace {

using Bytes = std::vector<std::uint8_t>;

// Bytes at an odd address.
class OddBytes {
 public:
  explicit OddBytes(std::size_t count) : memory_(count + 1) {}
  explicit OddBytes(const Bytes& bytes) : OddBytes(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + 1);
  }
  Span span() { return {memory_.data() + 1, memory_.size() - 1, DType::uint8}; }
  bool operator==(const Bytes& bytes) const {
    return std::equal(memory_.begin() + 1, memory_.end(), bytes.begin(), bytes.end());
  }

 private:
  Bytes memory_;
};

// The bytes that one rank sends to another, or to all (to = 0).
Bytes bytes_for(int from, int to, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::uint8_t>(31 * from + 7 * to + static_cast<int>(i % 251));
  return bytes;
}

template <class Part>
Bytes joined(int size, Part part) {
  Bytes all;
  for (int r = 0; r < size; ++r) {
    const Bytes each = part(r);
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

}  // namespace

void bytes_have_any_length_and_alignment(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const std::size_t count : {1u, 3u, 103u, 105u, 4'097u, 16'385u, 65'537u}) {
    run_ranks(groups, [&](ProcessGroup& group) {
      const int own = group.rank(), last = size - 1, right = (own + 1) % size, left = (own + last) % size;
      const auto of_all = joined(size, [&](int r) { return bytes_for(r, 0, count); });
      const auto for_all = [&](int from) { return joined(size, [&](int r) { return bytes_for(from, r, count); }); };
      OddBytes mine(bytes_for(own, 0, count)), parts(for_all(own)), broadcasted(bytes_for(own, 0, count)), part(count);
      OddBytes gathered(of_all.size()), at_root(own == last ? of_all.size() : 0), exchanged(of_all.size());
      group.broadcast(broadcasted.span(), last)->wait();
      expect(broadcasted == bytes_for(last, 0, count), fmt::format("broadcast of {}", count));
      group.allgather(mine.span(), gathered.span())->wait();
      expect(gathered == of_all, fmt::format("allgather of {}", count));
      group.gather(mine.span(), at_root.span(), last)->wait();
      expect(own != last || at_root == of_all, fmt::format("gather of {}", count));
      group.scatter(own == last ? parts.span() : Span{}, part.span(), last)->wait();
      expect(part == bytes_for(last, own, count), fmt::format("scatter of {}", count));
      group.all_to_all(parts.span(), exchanged.span())->wait();
      expect(exchanged == joined(size, [&](int r) { return bytes_for(r, own, count); }),
             fmt::format("all_to_all of {}", count));
      group.allreduce(mine.span(), ReduceOp::max)->wait();
      auto largest = bytes_for(0, 0, count);
      for (int r = 1; r < size; ++r)
        std::ranges::transform(largest, bytes_for(r, 0, count), largest.begin(),
                               [](auto a, auto b) { return std::max(a, b); });
      expect(mine == largest, fmt::format("allreduce of {}", count));
      if (size == 1) return;
      OddBytes sent(bytes_for(own, right, count)), received(count);
      const auto sending = group.send(sent.span(), right, 1);
      group.recv(received.span(), left, 1)->wait();
      sending->wait();
      expect(received == bytes_for(left, own, count), fmt::format("a message of {}", count));
    });
  }
}

// Short texts travel with their lengths.
void texts_have_any_length(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const std::size_t length : {0u, 1u, 247u, 248u, 249u, 4'088u, 4'089u, 100'000u}) {
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto text_of = [&](int rank) { return std::string(rank == 0 ? length : 7, static_cast<char>('a' + rank)); };
      const auto of_all = all_gather_bytes(group, text_of(group.rank()));
      for (int r = 0; r < size; ++r)
        expect(of_all[static_cast<std::size_t>(r)] == text_of(r), fmt::format("{} bytes of rank {}", length, r));
      expect(broadcast_bytes(group, text_of(group.rank()), 0) == text_of(0), fmt::format("broadcast of {}", length));
    });
  }
}

}  // namespace ddprun::contract

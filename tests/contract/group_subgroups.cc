#include "worker/comm/subgroups.h"
#include "tests/contract/group_contract.h"

namespace ddprun::contract {

void subgroups_are_independent_of_their_parent(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    const int rank = group.rank();
    // The halves are odd and even ranks in reverse order; the whole has all ranks in reverse order.
    const auto half = split(group, rank % 2, -rank);
    std::vector<int> reversed;
    for (int r = size - 1; r >= 0; --r) reversed.push_back(r);
    const auto all_reversed = subgroup(group, reversed);
    expect(all_reversed->rank() == size - 1 - rank && all_reversed->size() == size,
           "the list gives the order of the ranks");
    const auto alone = split(group, rank == 0 ? std::optional<std::int64_t>(5) : std::nullopt, 0);
    expect((alone != nullptr) == (rank == 0), "without a colour there is no group");

    std::vector<std::int64_t> own(3, rank), all(3, rank), in_reversed(3, rank);
    const auto in_half = half->allreduce(span_of(own), ReduceOp::sum);
    const auto in_all = group.allreduce(span_of(all), ReduceOp::sum);
    all_reversed->broadcast(span_of(in_reversed), 0)->wait();
    in_all->wait();
    in_half->wait();
    std::int64_t expected = 0;
    int before = 0;
    for (int r = 0; r < size; ++r) {
      if (r % 2 != rank % 2) continue;
      expected += r;
      if (r > rank) ++before;
    }
    expect(half->rank() == before, "keys order the ranks of a colour");
    expect(own[2] == expected, "the sum of one colour");
    expect(all[2] == size * (size - 1) / 2, "the sum of all");
    expect(in_reversed[2] == size - 1, "the value of the first rank in the list");

    const auto wrong = error_of([&] { subgroup(group, {0, size}); });
    expect(wrong.code() == Errc::usage, "an invalid rank is refused");
    if (size > 1) {
      const auto other = error_of([&] { subgroup(group, {rank == 0 ? 0 : 1}); });
      expect(other.code() == Errc::mismatch, "different lists are refused at all ranks");
    }
    group.barrier()->wait();
  });
}

}  // namespace ddprun::contract

#include "ddprun/worker/comm/subgroups.h"
#include "tests/contract/group_contract.h"

namespace ddprun::contract {

void splits_into_groups_that_live_beside_it(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    const int rank = group.rank();
    // Odd and even ranks, each from the last to the first; and all in another order.
    const auto half = split(group, rank % 2, -rank);
    std::vector<int> reversed;
    for (int r = size - 1; r >= 0; --r) reversed.push_back(r);
    const auto turned = subgroup(group, reversed);
    expect(turned->rank() == size - 1 - rank && turned->size() == size, "the list's order is that of the ranks");
    const auto alone = split(group, rank == 0 ? std::optional<std::int64_t>(5) : std::nullopt, 0);
    expect((alone != nullptr) == (rank == 0), "without a colour there is no group");

    std::vector<std::int64_t> own(3, rank), all(3, rank), in_turned(3, rank);
    const auto in_half = half->allreduce(span_of(own), ReduceOp::sum);
    const auto in_all = group.allreduce(span_of(all), ReduceOp::sum);
    turned->broadcast(span_of(in_turned), 0)->wait();
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
    expect(in_turned[2] == size - 1, "what the first of the list has");

    const auto wrong = error_of([&] { subgroup(group, {0, size}); });
    expect(wrong.code() == Errc::usage, "a rank that there is not is refused");
    if (size > 1) {
      const auto other = error_of([&] { subgroup(group, {rank == 0 ? 0 : 1}); });
      expect(other.code() == Errc::mismatch, "lists that differ are refused at all ranks");
    }
    group.barrier()->wait();
  });
}

}  // namespace ddprun::contract

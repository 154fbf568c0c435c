#include <atomic>

#include <fmt/core.h>

#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {

void knows_its_rank_and_size(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  expect(groups.size() == static_cast<std::size_t>(size), "one group a rank");
  for (int r = 0; r < size; ++r) {
    expect(groups[static_cast<std::size_t>(r)]->rank() == r, "rank");
    expect(groups[static_cast<std::size_t>(r)]->size() == size, "size");
  }
}

void barrier_holds_until_all_have_come(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  std::atomic<int> arrived = 0;
  for (int round = 1; round <= 20; ++round) {
    run_ranks(groups, [&](ProcessGroup& group) {
      ++arrived;
      group.barrier()->wait();
      expect(arrived >= round * size, "nobody leaves before all have come");
    });
  }
}

void zero_length_is_legal(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    group.allreduce({}, ReduceOp::sum)->wait();
    group.broadcast({}, size - 1)->wait();
    group.allgather({}, {})->wait();
    group.reduce_scatter({}, {}, ReduceOp::max)->wait();
    if (size > 1 && group.rank() == 0) group.send({}, 1, 5)->wait();
    if (group.rank() == 1) group.recv({}, 0, 5)->wait();
    std::vector<double> one = {1.0};
    group.allreduce(span_of(one), ReduceOp::sum)->wait();
    expect(one[0] == size, "and the group goes on");
  });
}

void many_operations_are_in_flight(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    constexpr int count = 100;
    std::vector<std::vector<float>> buffers;
    for (int i = 0; i < count; ++i) buffers.emplace_back(static_cast<std::size_t>(1 + i * 13), static_cast<float>(i));
    std::vector<WorkPtr> works;
    for (auto& buffer : buffers) works.push_back(group.allreduce(span_of(buffer), ReduceOp::sum));
    for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
    for (int i = 0; i < count; ++i) {
      expect(buffers[static_cast<std::size_t>(i)].back() == static_cast<float>(i * size),
             fmt::format("operation {}", i));
    }
  });
}

void a_blocking_call_returns_when_it_is_done(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<std::int64_t> values(1001, 1);
    const auto work = group.allreduce(span_of(values), ReduceOp::sum, {.blocking = true});
    expect(work->done() && !work->error(), "done, without an error");
    expect(values == std::vector<std::int64_t>(1001, size), "the sum");
  });
  groups[0]->abort("the test says so");
  const auto error = error_of([&] { groups[0]->barrier({.blocking = true}); });
  expect(error.code() == Errc::aborted, "its error comes out of the call");
}

}  // namespace ddprun::contract

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <limits>
#include <span>

#include <fmt/core.h>

#include "worker/comm/operations/operation.h"
#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {

using comm::OpKind;

void knows_its_rank_and_size(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  expect(groups.size() == static_cast<std::size_t>(size), "one group per rank");
  for (int r = 0; r < size; ++r) {
    expect(groups[static_cast<std::size_t>(r)]->rank() == r, "rank");
    expect(groups[static_cast<std::size_t>(r)]->size() == size, "size");
  }
}

void allocated_memory_is_zero_and_of_the_requested_size(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  for (const auto& group : groups) {
    for (const std::size_t bytes : {0u, 1u, 10'000u}) {
      const auto memory = group->allocate(bytes);
      expect(memory.bytes() == bytes && reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 == 0,
             "size and alignment");
      expect(std::all_of(memory.data(), memory.data() + bytes, [](auto each) { return each == std::byte{0}; }), "zero");
    }
    const auto error = error_of([&] { group->allocate(std::numeric_limits<std::size_t>::max() - 10); });
    expect(error.code() == Errc::io, error.what());
  }
}

void barrier_waits_for_all_ranks(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  std::atomic<int> arrived = 0;
  for (int round = 1; round <= 20; ++round) {
    run_ranks(groups, [&](ProcessGroup& group) {
      ++arrived;
      group.barrier()->wait();
      expect(arrived >= round * size, "no rank returns before all have called");
    });
  }
}

void zero_length_is_legal(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    group.allreduce({}, ReduceOp::sum)->wait();
    group.broadcast({}, size - 1)->wait();
    group.allgather({}, {})->wait();
    group.reduce_scatter({}, {}, ReduceOp::max)->wait();
    group.reduce({}, size - 1, ReduceOp::min)->wait();
    group.gather({}, {}, size - 1)->wait();
    group.scatter({}, {}, size - 1)->wait();
    group.all_to_all({}, {})->wait();
    const Counts nothing(static_cast<std::size_t>(size), 0);
    group.allgatherv({}, {}, nothing)->wait();
    group.reduce_scatterv({}, {}, nothing)->wait();
    group.gatherv({}, {}, nothing, 0)->wait();
    group.scatterv({}, nothing, {}, 0)->wait();
    group.all_to_allv({}, nothing, {}, nothing)->wait();
    if (size > 1 && group.rank() == 0) group.send({}, 1, 5)->wait();
    if (group.rank() == 1) group.recv({}, 0, 5)->wait();
    std::vector<double> one = {1.0};
    group.allreduce(span_of(one), ReduceOp::sum)->wait();
    expect(one[0] == size, "the group remains usable");
  });
}

void many_operations_are_in_flight(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
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

namespace {

constexpr OpKind every_kind[] = {OpKind::allreduce,  OpKind::broadcast,      OpKind::gather,
                                 OpKind::all_to_all, OpKind::reduce,         OpKind::allgather,
                                 OpKind::scatter,    OpKind::reduce_scatter, OpKind::barrier};

// The memory of one operation of each kind, in equal parts of part elements; the input of rank r is number + r.
struct EveryKind {
  EveryKind(int number, int rank, int size, std::size_t elements = 500)
      : part(elements),
        ranks(static_cast<std::size_t>(size)),
        sum(part, number + rank),
        at_root(part, number + rank),
        scattered(part),
        from_root(part),
        broadcasted(part, rank == 0 ? number : -1),
        own(part, number + rank),
        all(ranks * part),
        gathered(ranks * part),
        many(ranks * part, number + rank),
        exchanged(ranks * part) {}

  WorkPtr start(ProcessGroup& group, OpKind kind, OpOptions options = {}) {
    switch (kind) {
      case OpKind::allreduce:
        return group.allreduce(span_of(sum), {}, options);
      case OpKind::reduce:
        return group.reduce(span_of(at_root), 0, {}, options);
      case OpKind::broadcast:
        return group.broadcast(span_of(broadcasted), 0, options);
      case OpKind::scatter:
        return group.scatter(span_of(many), span_of(from_root), 0, options);
      case OpKind::gather:
        return group.gather(span_of(own), span_of(gathered), 0, options);
      case OpKind::all_to_all:
        return group.all_to_all(span_of(many), span_of(exchanged), options);
      case OpKind::allgather:
        return group.allgather(span_of(own), span_of(all), options);
      case OpKind::reduce_scatter:
        return group.reduce_scatter(span_of(many), span_of(scattered), {}, options);
      default:
        return group.barrier(options);
    }
  }

  void check(int number, int rank) const {
    const auto size = static_cast<std::int32_t>(ranks), total = size * number + size * (size - 1) / 2;
    const Values each_sum(part, total);
    Values parts;
    for (std::int32_t r = 0; r < size; ++r) parts.insert(parts.end(), part, number + r);
    expect(sum == each_sum, fmt::format("allreduce {}", number));
    expect(rank != 0 || at_root == each_sum, fmt::format("reduce {}", number));
    expect(from_root == Values(part, number), fmt::format("scatter {}", number));
    expect(scattered == each_sum, fmt::format("reduce_scatter {}", number));
    expect(broadcasted == Values(part, number), fmt::format("broadcast {}", number));
    expect(all == parts, fmt::format("allgather {}", number));
    expect(rank != 0 || gathered == parts, fmt::format("gather {}", number));
    expect(exchanged == parts, fmt::format("all_to_all {}", number));
  }

  using Values = std::vector<std::int32_t>;
  std::size_t part, ranks;
  Values sum, at_root, scattered, from_root, broadcasted, own, all, gathered, many, exchanged;
};

}  // namespace

// Consecutive operations of a kind differ in their values only: none may receive the values of another.
void operations_of_every_kind_are_in_flight(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<EveryKind> rounds;
    for (int i = 0; i < 20; ++i) rounds.emplace_back(1000 * i, group.rank(), size);
    std::vector<WorkPtr> works;
    for (const auto kind : every_kind) {
      for (auto& round : rounds) works.push_back(round.start(group, kind));
    }
    std::vector<std::int32_t> sent(20, group.rank()), received(20, -1);
    const int right = (group.rank() + 1) % size, left = (group.rank() + size - 1) % size;
    for (std::size_t i = 0; i < sent.size() && size > 1; ++i) {  // concurrently
      works.push_back(group.send({&sent[i], 1, DType::int32}, right, static_cast<int>(i % 3)));
      works.push_back(group.recv({&received[i], 1, DType::int32}, left, static_cast<int>(i % 3)));
    }
    for (const auto& work : works) work->wait();
    for (int i = 0; i < 20; ++i) rounds[static_cast<std::size_t>(i)].check(1000 * i, group.rank());
    expect(size == 1 || received == std::vector<std::int32_t>(20, left), "messages");
  });
}

namespace {

// The error that ends a rank's operations of all kinds, in rounds. Rank 0 aborts when it starts operation aborted_at.
Error end_of_rounds(ProcessGroup& group, std::size_t elements, int aborted_at, bool blocking) {
  std::deque<EveryKind> rounds;
  std::vector<WorkPtr> works;
  std::jthread aborter;
  const auto error = error_of([&] {
    for (int started = 0;;) {
      const int number = 10 * started;
      auto& round = rounds.emplace_back(number, group.rank(), group.size(), elements);
      for (const auto kind : every_kind) {
        if (started++ == aborted_at && group.rank() == 0)
          aborter = std::jthread([&group] { group.abort("the test says so"); });
        works.push_back(round.start(group, kind, {.blocking = blocking}));
      }
      for (const auto& work : works) work->wait();
      round.check(number, group.rank());
    }
  });
  for (const auto& work : works) {
    try {
      work->wait();
    } catch (const Error& each) {
      expect(each.what() == std::string(error.what()), "one cause");
    }
  }
  expect(error_of([&] { group.barrier()->wait(); }).what() == std::string(error.what()), "one cause, also later");
  return error;
}

}  // namespace

// All ranks are busy; the aborting rank is the first or last in an operation, or between two.
void an_abort_at_any_point_ends_all_ranks(const MakeGroups& make, int size) {
  constexpr int points = 2 * std::size(every_kind);
  const int step = size > 3 ? 5 : 1;
  for (int point = size % step; point < points; point += step) {
    for (const std::size_t elements : {3u, 30'001u}) {
      auto groups = make(size, std::chrono::hours(1));
      run_ranks(groups, [&](ProcessGroup& group) {
        const auto error = end_of_rounds(group, elements, point, point % 2 == 0);
        expect(error.code() == (group.rank() == 0 ? Errc::aborted : Errc::peer_lost), error.what());
        for (const auto* said : {group.rank() == 0 ? "" : "rank 0", "the test says so"})
          expect(std::string(error.what()).find(said) != std::string::npos, error.what());
      });
    }
  }
}

// A rank that has finished one operation must not overwrite, for the next, what other ranks still read.
void consecutive_large_operations_do_not_interfere(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    constexpr std::size_t count = 20'011;
    const OpOptions blocking{.blocking = true};
    std::vector<std::int32_t> part(count), whole(count * static_cast<std::size_t>(size));
    for (int round = 0; round < 60; ++round) {
      const auto of = [&](int rank) { return 100 * round + rank; };
      const auto sum = size * 100 * round + size * (size - 1) / 2;
      const auto expect_all = [&](const auto& values, int value, const char* what) {
        expect(std::all_of(values.begin(), values.end(), [&](int each) { return each == value; }),
               fmt::format("{} in round {}", what, round));
      };
      part.assign(count, of(group.rank()));
      if (round % 4 == 0) {
        group.broadcast(span_of(part), round % size, blocking);
        expect_all(part, of(round % size), "broadcast");
      } else if (round % 4 == 1) {
        group.allgather(span_of(part), span_of(whole), blocking);
        for (int r = 0; r < size; ++r)
          expect_all(std::span(whole).subspan(static_cast<std::size_t>(r) * count, count), of(r), "allgather");
      } else if (round % 4 == 2) {
        whole.assign(whole.size(), of(group.rank()));
        group.reduce_scatter(span_of(whole), span_of(part), ReduceOp::sum, blocking);
        expect_all(part, sum, "reduce_scatter");
      }
      part.assign(count, of(group.rank()) + 50);
      group.allreduce(span_of(part), ReduceOp::sum, blocking);
      expect_all(part, sum + 50 * size, "allreduce");
    }
  });
}

void an_expired_wait_does_not_end_its_operation(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, test_timeout);
  std::vector<float> small(5, 1), large(100'000, 1), received(3);
  const std::vector<WorkPtr> works = {groups[0]->recv(span_of(received), 1, 4), groups[0]->allreduce(span_of(small)),
                                      groups[0]->allreduce(span_of(large))};
  for (const auto deadline :
       {Deadline::at(Deadline::Clock::time_point::min()), Deadline::in(std::chrono::milliseconds(5))}) {
    for (const auto& work : works) {
      const auto error = error_of([&] { work->wait(deadline); });
      expect(error.code() == Errc::timeout, error.what());
      expect(!work->done() && !work->error(), "it continues");
    }
  }
  run_ranks(groups, [&](ProcessGroup& group) {
    if (group.rank() == 0) return;
    std::vector<float> values(5, 1), more(100'000, 1), sent(3, 7);
    if (group.rank() == 1) group.send(span_of(sent), 0, 4)->wait();
    group.allreduce(span_of(values))->wait();
    group.allreduce(span_of(more))->wait(Deadline::in(test_timeout));
  });
  for (const auto& work : works) work->wait();
  expect(received == std::vector<float>(3, 7), "the message");
  expect(small == std::vector<float>(5, static_cast<float>(size)), "the small sum");
  expect(large == std::vector<float>(100'000, static_cast<float>(size)), "the large sum");
}

void a_blocking_call_returns_when_it_has_finished(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<std::int64_t> values(1001, 1);
    const auto work = group.allreduce(span_of(values), ReduceOp::sum, {.blocking = true});
    expect(work->done() && !work->error(), "done, without an error");
    expect(values == std::vector<std::int64_t>(1001, size), "the sum");
  });
  groups[0]->abort("the test says so");
  const auto error = error_of([&] { groups[0]->barrier({.blocking = true}); });
  expect(error.code() == Errc::aborted, "the call throws the error");
}

}  // namespace ddprun::contract

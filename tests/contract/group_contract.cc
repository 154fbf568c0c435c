#include "tests/contract/group_contract.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <random>

#include <fmt/core.h>

#include "ddprun/worker/comm/half.h"
#include "ddprun/worker/comm/operation.h"
#include "ddprun/worker/comm/thread_group.h"

namespace ddprun::contract {
namespace {

constexpr DType all_types[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                               DType::int8,    DType::uint8,   DType::int32,   DType::int64};
constexpr ReduceOp all_ops[] = {ReduceOp::sum,    ReduceOp::average, ReduceOp::product,
                                ReduceOp::min,    ReduceOp::max,     ReduceOp::bit_and,
                                ReduceOp::bit_or, ReduceOp::bit_xor, ReduceOp::premultiplied_sum};
// Odd ones, around the borders of chunks, and one that takes several segments.
constexpr std::size_t lengths[] = {1, 2, 3, 7, 64, 1001, 70'001};

// A premultiplied sum's factor that differs between ranks and that every type holds exactly.
Reduction reduction_of(ReduceOp op, int rank) {
  return op == ReduceOp::premultiplied_sum ? Reduction::premultiplied_sum(rank % 2 ? 0.5 : 2) : Reduction(op);
}

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16;
}

bool fits(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      return is_float(dtype);
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      return !is_float(dtype);
    default:
      return true;
  }
}

void put(std::vector<std::byte>& bytes, DType dtype, std::size_t index, double value) {
  const auto store = [&](auto typed) { std::memcpy(bytes.data() + index * sizeof(typed), &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::float32:
      return store(static_cast<float>(value));
    case DType::float64:
      return store(value);
    case DType::float16:
      return store(comm::float16_from_float(static_cast<float>(value)));
    case DType::bfloat16:
      return store(comm::bfloat16_from_float(static_cast<float>(value)));
    case DType::int8:
      return store(static_cast<std::int8_t>(value));
    case DType::uint8:
      return store(static_cast<std::uint8_t>(value));
    case DType::int32:
      return store(static_cast<std::int32_t>(value));
    case DType::int64:
      return store(static_cast<std::int64_t>(value));
  }
}

// Small whole numbers, which every type and every order of summation holds exactly.
std::vector<std::byte> small_values(DType dtype, std::size_t count, int rank) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i)
    put(bytes, dtype, i, static_cast<double>((i * 7 + 3u * static_cast<unsigned>(rank)) % 4 + 1));
  return bytes;
}

Span typed(std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), bytes.size() / size_of(dtype), dtype};
}
ConstSpan typed(const std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), bytes.size() / size_of(dtype), dtype};
}

// The oracle's answer: the same call on ranks that are threads.
std::vector<std::vector<std::byte>> expected_allreduce(DType dtype, ReduceOp op, std::size_t count, int size) {
  auto oracle = comm::make_thread_groups(size);
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

template <class Body>
void for_each_reduction(Body body) {
  for (const auto dtype : all_types) {
    for (const auto op : all_ops) {
      if (!fits(op, dtype)) continue;
      for (const std::size_t count : {1, 7, 1001}) body(dtype, op, count);
    }
  }
  for (const auto dtype : {DType::float32, DType::bfloat16}) body(dtype, ReduceOp::sum, 70'001);
}

}  // namespace

void run_ranks(Groups& groups, const RankBody& body) {
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&body, &failures, &groups, r] {
      try {
        body(*groups[r]);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void knows_its_rank_and_size(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  expect(groups.size() == static_cast<std::size_t>(size), "one group a rank");
  for (int r = 0; r < size; ++r) {
    expect(groups[static_cast<std::size_t>(r)]->rank() == r, "rank");
    expect(groups[static_cast<std::size_t>(r)]->size() == size, "size");
  }
}

void allreduce_combines_every_type(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for_each_reduction([&](DType dtype, ReduceOp op, std::size_t count) {
    const auto expected = expected_allreduce(dtype, op, count, size);
    run_ranks(groups, [&](ProcessGroup& group) {
      auto values = small_values(dtype, count, group.rank());
      group.allreduce(typed(values, dtype), reduction_of(op, group.rank()))->wait();
      expect(values == expected[static_cast<std::size_t>(group.rank())], label(dtype, op, count));
    });
  });
}

void reduce_combines_at_the_root(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  int root = 0;
  for_each_reduction([&](DType dtype, ReduceOp op, std::size_t count) {
    root = (root + 1) % size;
    const auto expected = expected_allreduce(dtype, op, count, size)[0];
    run_ranks(groups, [&](ProcessGroup& group) {
      auto values = small_values(dtype, count, group.rank());
      const auto before = values;
      group.reduce(typed(values, dtype), root, reduction_of(op, group.rank()))->wait();
      if (group.rank() == root) {
        expect(values == expected, label(dtype, op, count));
      } else {
        expect(values == before, "the others' buffers are only read");
      }
    });
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

void allreduce_leaves_the_same_bits_everywhere(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
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
      // Each addition of numbers below 8 errs by at most half a unit in the last place, 2^-22.
      expect(std::abs(static_cast<double>(results[0][i]) - exact[i]) <= (size - 1) * 0x1p-22, "the sum");
    }
  }
}

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

void reduce_scatter_gives_each_its_block(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  for_each_reduction([&](DType dtype, ReduceOp op, std::size_t count) {
    const auto whole = count * static_cast<std::size_t>(size);
    const auto expected = expected_allreduce(dtype, op, whole, size)[0];
    run_ranks(groups, [&](ProcessGroup& group) {
      const auto input = small_values(dtype, whole, group.rank());
      const auto before = input;
      std::vector<std::byte> output(count * size_of(dtype));
      group.reduce_scatter(typed(input, dtype), typed(output, dtype), reduction_of(op, group.rank()))->wait();
      const auto* block = expected.data() + output.size() * static_cast<std::size_t>(group.rank());
      expect(std::memcmp(output.data(), block, output.size()) == 0, label(dtype, op, count));
      expect(input == before, "the input is only read");
    });
  });
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

void send_and_recv_match_by_tag(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, patience);
  const std::size_t large = 200'003;
  run_ranks(groups, [&](ProcessGroup& group) {
    // Everybody sends to its right before it receives from its left, two tags crosswise and two messages of one tag.
    const int right = (group.rank() + 1) % size, left = (group.rank() + size - 1) % size;
    std::vector<std::int32_t> first(large, group.rank()), second(3, 10 + group.rank()), third(3, 20 + group.rank());
    std::vector<WorkPtr> works = {group.send(span_of(first), right, 1), group.send(span_of(second), right, 2),
                                  group.send(span_of(third), right, 2)};
    std::vector<std::int32_t> a(large), b(3), c(3);
    group.recv(span_of(b), left, 2)->wait();
    group.recv(span_of(c), left, 2)->wait();
    group.recv(span_of(a), left, 1)->wait();
    for (auto& work : works) work->wait();
    expect(a == std::vector<std::int32_t>(large, left), "tag 1");
    expect(b == std::vector<std::int32_t>(3, 10 + left), "tag 2, first message");
    expect(c == std::vector<std::int32_t>(3, 20 + left), "tag 2, second message");
  });
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

void wrong_arguments_are_refused(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  auto& group = *groups[0];
  std::vector<std::int32_t> values(3), odd(3 * static_cast<std::size_t>(size) + 1);
  std::vector<float> other(3 * static_cast<std::size_t>(size));
  const auto usage = [](auto call) { return error_of(call).code() == Errc::usage; };
  expect(usage([&] { group.broadcast(span_of(values), size); }), "root beyond the last rank");
  expect(usage([&] { group.broadcast(span_of(values), -1); }), "negative root");
  expect(usage([&] { group.allgather(span_of(values), span_of(odd)); }), "allgather of a wrong size");
  expect(usage([&] { group.allgather(span_of(values), span_of(other)); }), "allgather into another type");
  expect(usage([&] { group.reduce_scatter(span_of(odd), span_of(values), ReduceOp::sum); }), "reduce_scatter");
  expect(usage([&] { group.allreduce(span_of(values), ReduceOp::average); }), "average of whole numbers");
  expect(usage([&] { group.allreduce(span_of(values), Reduction::premultiplied_sum(2)); }),
         "multiples of whole numbers");
  expect(usage([&] { group.allreduce(span_of(other), ReduceOp::bit_or); }), "bits of floats");
  expect(usage([&] { group.reduce(span_of(values), size); }), "reduce to a root beyond the last rank");
  expect(usage([&] { group.allreduce({nullptr, 3, DType::float32}, ReduceOp::sum); }), "null memory");
  expect(usage([&] { group.send(span_of(values), size, 0); }), "send beyond the last rank");
  expect(usage([&] { group.recv(span_of(values), 0, 0); }), "recv from itself");
  run_ranks(groups, [](ProcessGroup& each) { each.barrier()->wait(); });
}

void abort_frees_a_blocked_rank(const MakeGroups& make, int size) {
  auto groups = make(size, patience);
  std::vector<float> values(1000);
  if (size > 1) {
    auto work = groups[0]->allreduce(span_of(values), ReduceOp::sum);
    std::thread aborter([&] { groups[0]->abort("the test says so"); });
    const auto error = error_of([&] { work->wait(); });
    aborter.join();
    expect(error.code() == Errc::aborted, error.what());
    expect(std::string(error.what()).find("the test says so") != std::string::npos, error.what());
    const auto theirs = error_of([&] { groups[1]->allreduce(span_of(values), ReduceOp::sum)->wait(); });
    expect(theirs.code() == Errc::peer_lost, theirs.what());
    expect(std::string(theirs.what()).find("rank 0") != std::string::npos, theirs.what());
  } else {
    groups[0]->abort("the test says so");
  }
  const auto later = error_of([&] { groups[0]->barrier()->wait(); });
  expect(later.code() == Errc::aborted, "an aborted group stays so");
}

void a_rank_that_does_not_come_is_named(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    group.barrier()->wait();
    std::vector<float> values(10);
    if (group.rank() == 1) return;
    const auto error = error_of(
        [&] { group.allreduce(span_of(values), ReduceOp::sum, {.timeout = std::chrono::milliseconds(300)})->wait(); });
    expect(error.code() == Errc::timeout, error.what());
    expect(std::string(error.what()).find("rank 1") != std::string::npos, error.what());
    expect(std::string(error.what()).find("allreduce(sum) of 10 float32") != std::string::npos, error.what());
  });
}

void a_rank_that_leaves_is_named(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    group.barrier()->wait();
    if (group.rank() == size - 1) {
      groups[static_cast<std::size_t>(size - 1)].reset();
      return;
    }
    std::vector<float> values(10);
    const auto error = error_of([&] { group.allreduce(span_of(values), ReduceOp::sum)->wait(); });
    expect(error.code() == Errc::peer_lost, error.what());
    expect(std::string(error.what()).find(fmt::format("rank {}", size - 1)) != std::string::npos, error.what());
  });
}

void a_different_operation_is_named(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, patience);
  run_ranks(groups, [&](ProcessGroup& group) {
    std::vector<float> values(group.rank() == 0 ? 10 : 11);
    const OpOptions soon{.timeout = std::chrono::milliseconds(300)};
    const auto error = error_of([&] { group.allreduce(span_of(values), ReduceOp::sum, soon)->wait(); });
    expect(error.code() == Errc::mismatch, error.what());
    expect(std::string(error.what()).find("10 float32") != std::string::npos, error.what());
    expect(std::string(error.what()).find("11 float32") != std::string::npos, error.what());
  });
}

}  // namespace ddprun::contract

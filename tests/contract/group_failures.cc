#include <cstring>
#include <functional>

#include <fmt/core.h>

#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {

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
    if (group.rank() == size - 1) {
      group.barrier()->wait();
      groups[static_cast<std::size_t>(size - 1)].reset();
      return;
    }
    std::vector<float> values(10);
    const auto error = error_of([&] {
      group.barrier()->wait();  // which may still be under way here when it is over there
      group.allreduce(span_of(values), ReduceOp::sum)->wait();
    });
    expect(error.code() == Errc::peer_lost, error.what());
    expect(std::string(error.what()).find(fmt::format("rank {}", size - 1)) != std::string::npos, error.what());
  });
}

namespace {

// What a rank's operations work on.
struct Buffers {
  explicit Buffers(int size) : whole(10 * static_cast<std::size_t>(size)) {}
  std::vector<float> values = std::vector<float>(10), more = std::vector<float>(11), whole;
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(10);
};
using Operation = std::function<WorkPtr(ProcessGroup&, Buffers&)>;

// What rank 0 calls and what the others do, and how messages name the two.
struct Disagreement {
  Operation first, other;
  std::string first_name, other_name;
};

std::vector<Disagreement> disagreements() {
  const Operation sum = [](auto& group, auto& of) { return group.allreduce(span_of(of.values), ReduceOp::sum); };
  const auto reduce_to = [](int root) -> Operation {
    return [root](auto& group, auto& of) { return group.reduce(span_of(of.values), root); };
  };
  return {
      {sum, [](auto& group, auto& of) { return group.allreduce(span_of(of.more)); }, "10 float32", "11 float32"},
      {sum, [](auto& group, auto& of) { return group.allreduce(span_of(of.numbers)); }, "10 float32", "10 int32"},
      {sum, [](auto& group, auto& of) { return group.allreduce(span_of(of.values), ReduceOp::max); }, "sum", "max"},
      {sum, [](auto& group, auto&) { return group.barrier(); }, "allreduce(sum)", "barrier"},
      {sum, [](auto& group, auto& of) { return group.all_to_all(span_of(of.whole), span_of(of.whole)); }, "allreduce",
       "all_to_all"},
      {reduce_to(0), reduce_to(1), "to rank 0", "to rank 1"},
  };
}

}  // namespace

// Long before any timeout, and without anybody's asking for it.
void a_different_operation_is_named(const MakeGroups& make, int size) {
  if (size < 2) return;
  for (const auto& [first, other, first_name, other_name] : disagreements()) {
    auto groups = make(size, patience);
    run_ranks(groups, [&](ProcessGroup& group) {
      Buffers buffers(size);
      const auto error = error_of([&] {
        (group.rank() == 0 ? first : other)(group, buffers)->wait();
        group.barrier()->wait();  // a rank that only gives may be done before the others come
      });
      expect(error.code() == Errc::mismatch, error.what());
      expect(std::string(error.what()).find(first_name) != std::string::npos, error.what());
      expect(std::string(error.what()).find(other_name) != std::string::npos, error.what());
      expect(std::string(error.what()).find("rank 0") != std::string::npos, error.what());
    });
  }
}

}  // namespace ddprun::contract

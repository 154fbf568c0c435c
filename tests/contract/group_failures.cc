#include <cstring>
#include <functional>
#include <limits>

#include <fmt/core.h>

#include "tests/contract/group_contract.h"
#include "tests/contract/group_values.h"

namespace ddprun::contract {

void wrong_arguments_are_refused(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
  auto& group = *groups[0];
  std::vector<std::int32_t> values(3), odd(3 * static_cast<std::size_t>(size) + 1);
  std::vector<float> other(3 * static_cast<std::size_t>(size) + 1);
  const auto usage = [](auto call) { return error_of(call).code() == Errc::usage; };
  expect(usage([&] { group.broadcast(span_of(values), size); }), "root beyond the last rank");
  expect(usage([&] { group.broadcast(span_of(values), -1); }), "negative root");
  expect(usage([&] { group.allgather(span_of(values), span_of(odd)); }), "allgather of a wrong size");
  expect(usage([&] { group.allgather(span_of(values), span_of(other)); }), "allgather into another type");
  expect(usage([&] { group.reduce_scatter(span_of(odd), span_of(values), ReduceOp::sum); }), "reduce_scatter");
  expect(usage([&] { group.allreduce(span_of(values), ReduceOp::average); }), "average of integers");
  expect(usage([&] { group.allreduce(span_of(values), Reduction::premultiplied_sum(2)); }),
         "premultiplied sum of integers");
  expect(usage([&] { group.allreduce(span_of(other), ReduceOp::bit_or); }), "bits of floats");
  expect(usage([&] { group.reduce(span_of(values), size); }), "reduce to a root beyond the last rank");
  expect(usage([&] { group.allreduce({nullptr, 3, DType::float32}, ReduceOp::sum); }), "null memory");
  constexpr auto endless = std::numeric_limits<std::size_t>::max();
  expect(usage([&] { group.allreduce({values.data(), endless, DType::int32}, ReduceOp::sum); }), "endless memory");
  expect(usage([&] { group.send({values.data(), endless / 8, DType::float64}, size - 1, 0); }), "of endless bytes");
  expect(usage([&] { group.send(span_of(values), size, 0); }), "send beyond the last rank");
  expect(usage([&] { group.recv(span_of(values), 0, 0); }), "recv from itself");
  expect(usage([&] { group.send(span_of(values), size - 1, -1); }), "a negative tag");

  for (const int none : {0, -5}) {
    const OpOptions options{.timeout = std::chrono::milliseconds(none)};
    expect(usage([&] { group.barrier(options); }), "a barrier that is late before it begins");
    expect(usage([&] { group.allreduce(span_of(other), {}, options); }), "an allreduce that is");
    if (size > 1) expect(usage([&] { group.recv(span_of(other), 1, 0, options); }), "a recv that is");
  }

  const auto ranks = static_cast<std::size_t>(size);
  const Span whole{other.data(), 3 * ranks, DType::float32}, part{other.data(), 3, DType::float32};
  const Counts equal(ranks, 3), too_many(ranks + 1, 3), different(ranks, 4);
  expect(usage([&] { group.allgatherv(part, whole, too_many); }), "counts for other ranks");
  expect(usage([&] { group.reduce_scatterv(whole, part, different); }), "a count that is not the part's");
  expect(usage([&] { group.gather(part, {other.data(), 1, DType::float32}, 0); }), "gather into too little");
  expect(usage([&] { group.scatter(span_of(odd), {odd.data(), 2, DType::int32}, 0); }), "scatter of too much");
  expect(usage([&] { group.gather(part, whole, size); }), "gather to an invalid root");
  std::vector<float> apart(3 * ranks);
  expect(usage([&] { group.all_to_allv(whole, equal, span_of(apart), different); }), "all_to_allv into too little");
  expect(usage([&] { group.all_to_allv(whole, equal, whole, equal); }), "all_to_allv in place");
  expect(usage([&] { group.scatterv(whole, too_many, part, 0); }), "scatterv to other ranks");
  expect(usage([&] {
           group.gatherv(part, {nullptr, 3 * ranks, DType::float32}, equal, 0);
         }),
         "gatherv into a null address");
  expect(usage([&] { group.reduce_scatter(span_of(odd), span_of(values), ReduceOp::average); }), "average of integers");
  expect(usage([&] { group.allreduce(whole, {apart.data(), 1, DType::float32}); }), "allreduce into too little");
  expect(usage([&] { group.allreduce(part, {other.data() + 1, 3, DType::float32}); }), "shifted by one");
  expect(usage([&] { group.allgather_coalesced({part}, {}); }), "inputs without outputs");
  expect(usage([&] { group.broadcast_coalesced({part}, size); }), "coalesced, from an invalid root");
  if (size > 1) {
    expect(usage([&] { group.all_to_all(span_of(odd), span_of(odd)); }), "all_to_all of an uneven buffer");
    expect(usage([&] { group.allgather({other.data() + 1, 3, DType::float32}, whole); }), "not the own part in place");
    Counts wrapping(ranks, 3);
    wrapping.back() = endless - 2;  // wraps around to minus 3, so that the sum is small
    expect(usage([&] {
             group.allgatherv(part, {odd.data(), 3 * (ranks - 2), DType::float32}, wrapping);
           }),
           "counts that wrap around");
  }
  run_ranks(groups, [](ProcessGroup& each) { each.barrier()->wait(); });
}

void abort_ends_a_blocked_call(const MakeGroups& make, int size) {
  auto groups = make(size, test_timeout);
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
  expect(later.code() == Errc::aborted, "an aborted group stays aborted");
}

namespace {

using Start = std::function<WorkPtr(ProcessGroup&, std::vector<float>&, OpOptions)>;

// Each operation waits for rank 1. The buffer holds two parts for each of two or three ranks.
std::vector<std::pair<const char*, Start>> operations_that_wait() {
  static const auto piece = [](std::vector<float>& of, std::size_t count) -> Span {
    return {of.data(), count, DType::float32};
  };
  static const auto counts = [](ProcessGroup& group) { return Counts(static_cast<std::size_t>(group.size()), 7); };
  static const auto rest = [](ProcessGroup& group, std::vector<float>& of) -> Span {
    return {of.data() + of.size() / 2, 7 * static_cast<std::size_t>(group.size()), DType::float32};
  };
  return {
      {"allreduce", [](auto& g, auto& of, auto o) { return g.allreduce(piece(of, 5), {}, o); }},
      {"large allreduce", [](auto& g, auto& of, auto o) { return g.allreduce(span_of(of), {}, o); }},
      {"reduce", [](auto& g, auto& of, auto o) { return g.reduce(piece(of, 5), 0, {}, o); }},
      {"broadcast", [](auto& g, auto& of, auto o) { return g.broadcast(piece(of, 5), 1, o); }},
      {"allgather", [](auto& g, auto& of, auto o) { return g.allgather(piece(of, 7), rest(g, of), o); }},
      {"allgatherv", [](auto& g, auto& of, auto o) { return g.allgatherv(piece(of, 7), rest(g, of), counts(g), o); }},
      {"reduce_scatter", [](auto& g, auto& of, auto o) { return g.reduce_scatter(rest(g, of), piece(of, 7), {}, o); }},
      {"reduce_scatterv",
       [](auto& g, auto& of, auto o) { return g.reduce_scatterv(rest(g, of), piece(of, 7), counts(g), {}, o); }},
      {"gatherv", [](auto& g, auto& of, auto o) { return g.gatherv(piece(of, 7), rest(g, of), counts(g), 0, o); }},
      {"scatterv", [](auto& g, auto& of, auto o) { return g.scatterv({}, counts(g), piece(of, 7), 1, o); }},
      {"all_to_allv",
       [](auto& g, auto& of, auto o) {
         const Span apart{of.data(), rest(g, of).count, DType::float32};
         return g.all_to_allv(rest(g, of), counts(g), apart, counts(g), o);
       }},
      {"gather", [](auto& g, auto& of, auto o) { return g.gather(piece(of, 7), rest(g, of), 0, o); }},
      {"scatter", [](auto& g, auto& of, auto o) { return g.scatter({}, piece(of, 7), 1, o); }},
      {"all_to_all", [](auto& g, auto& of, auto o) { return g.all_to_all(rest(g, of), rest(g, of), o); }},
      {"barrier", [](auto& g, auto&, auto o) { return g.barrier(o); }},
      {"coalesced", [](auto& g, auto& of, auto o) { return g.allreduce_coalesced({piece(of, 5)}, {}, o); }},
      {"coalesced broadcast", [](auto& g, auto& of, auto o) { return g.broadcast_coalesced({piece(of, 5)}, 1, o); }},
      {"coalesced allgather",
       [](auto& g, auto& of, auto o) { return g.allgather_coalesced({piece(of, 7)}, {rest(g, of)}, o); }},
      {"coalesced reduce_scatter",
       [](auto& g, auto& of, auto o) { return g.reduce_scatter_coalesced({rest(g, of)}, {piece(of, 7)}, {}, o); }},
      {"large send", [](auto& g, auto& of, auto o) { return g.send(span_of(of), 1, 4, o); }},
      {"recv", [](auto& g, auto& of, auto o) { return g.recv(piece(of, 5), 1, 4, o); }},
      {"recv from any", [](auto& g, auto& of, auto o) { return g.recv(piece(of, 5), any_source, 4, o); }},
  };
}

}  // namespace

void abort_ends_every_kind_of_operation(const MakeGroups& make, int size) {
  if (size < 2 || size > 3) return;  // the waiting does not depend on the number of ranks
  for (const auto& [name, start] : operations_that_wait()) {
    for (const bool blocking : {false, true}) {
      auto groups = make(size, test_timeout);
      std::vector<float> values(2'000'000);
      std::thread aborter;
      const auto error = error_of([&] {
        if (blocking) aborter = std::thread([&] { groups[0]->abort("the test says so"); });
        const auto work = start(*groups[0], values, {.blocking = blocking});
        if (!blocking) aborter = std::thread([&] { groups[0]->abort("the test says so"); });
        work->wait();
      });
      if (aborter.joinable()) aborter.join();
      if (error.code() == Errc::unsupported) continue;  // the back end's own test checks which
      expect(error.code() == Errc::aborted, fmt::format("{}: {}", name, error.what()));
      for (std::size_t r = 1; r < groups.size(); ++r) {
        const auto theirs = error_of([&] { start(*groups[r], values, {})->wait(); });
        expect(theirs.code() == Errc::peer_lost || theirs.code() == Errc::usage,
               fmt::format("{} of rank {}: {}", name, r, theirs.what()));
      }
    }
  }
}

void a_rank_that_does_not_call_is_named(const MakeGroups& make, int size) {
  if (size < 2) return;
  auto groups = make(size, test_timeout);
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
  auto groups = make(size, test_timeout);
  run_ranks(groups, [&](ProcessGroup& group) {
    if (group.rank() == size - 1) {
      group.barrier()->wait();
      groups[static_cast<std::size_t>(size - 1)].reset();
      return;
    }
    std::vector<float> values(10);
    const auto error = error_of([&] {
      group.barrier()->wait();  // it may have finished at the other rank first
      group.allreduce(span_of(values), ReduceOp::sum)->wait();
    });
    expect(error.code() == Errc::peer_lost, error.what());
    expect(std::string(error.what()).find(fmt::format("rank {}", size - 1)) != std::string::npos, error.what());
  });
}

// The failure comes without a timeout, also after an earlier message of that rank.
void a_message_fails_when_its_peer_leaves(const MakeGroups& make, int size) {
  if (size != 3) return;  // between two ranks of which neither monitors the other
  std::vector<float> values(2'000'000), first(5), last(5);
  const Span none{values.data(), 0, DType::float32};
  std::vector<WorkPtr> older;  // messages from a rank that stays: more than the monitor compares
  const std::function<WorkPtr(ProcessGroup&)> starts[] = {
      [&](ProcessGroup& group) { return group.recv(span_of(values), 2, 4); },
      [&](ProcessGroup& group) { return group.recv(none, 2, 5); },
      [&](ProcessGroup& group) { return group.send(span_of(values), 2, 6); },
      [&](ProcessGroup& group) {
        for (int tag = 10; tag < 22; ++tag) older.push_back(group.recv(none, 1, tag));
        return group.recv(none, 2, 5);
      }};
  for (const auto& start : starts) {
    const bool before = &start == &starts[0];
    auto groups = make(size, std::chrono::hours(1));
    WorkPtr work;
    run_ranks(groups, [&](ProcessGroup& group) {
      if (group.rank() == 0) group.recv(span_of(last), 2, 4)->wait();
      if (group.rank() == 2) group.send(span_of(first), 0, 4)->wait();
      if (group.rank() == 0 && before) work = start(group);
      group.barrier()->wait();
    });
    groups[2].reset();
    if (!before) work = start(*groups[0]);
    const auto error = error_of([&] { work->wait(); });
    expect(error.code() == Errc::peer_lost, error.what());
    for (const auto* part : {"rank 2", "left the group"})
      expect(std::string(error.what()).find(part) != std::string::npos, error.what());
  }
}

namespace {

// The memory of a rank's operations.
struct Buffers {
  explicit Buffers(int size) : whole(10 * static_cast<std::size_t>(size)) {}
  std::vector<float> values = std::vector<float>(10), more = std::vector<float>(11), whole;
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(10);
};
using Operation = std::function<WorkPtr(ProcessGroup&, Buffers&)>;

// The calls of rank 0 and of the others, and the names of the two in messages.
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

// The failure comes without a timeout, and without GroupOptions asking for it.
void a_different_operation_is_named(const MakeGroups& make, int size) {
  if (size < 2) return;
  for (const auto& [first, other, first_name, other_name] : disagreements()) {
    auto groups = make(size, std::chrono::hours(1));
    run_ranks(groups, [&](ProcessGroup& group) {
      Buffers buffers(size);
      const auto error = error_of([&] {
        (group.rank() == 0 ? first : other)(group, buffers)->wait();
        group.barrier()->wait();  // a rank that only sends may finish before the others call
      });
      expect(error.code() == Errc::mismatch, error.what());
      expect(std::string(error.what()).find(first_name) != std::string::npos, error.what());
      expect(std::string(error.what()).find(other_name) != std::string::npos, error.what());
      expect(std::string(error.what()).find("rank 0") != std::string::npos, error.what());
    });
  }
}

// The ends differ in size or type; the failure comes without a timeout.
void a_message_with_different_ends_is_named(const MakeGroups& make, int size) {
  if (size < 2 || size > 3) return;  // the other ranks do not matter
  std::vector<float> values(11);
  std::vector<std::int32_t> numbers(11);
  const Span ten{values.data(), 10, DType::float32}, eleven = span_of(values), whole{numbers.data(), 10, DType::int32};
  for (const auto& [sent, expected] : {std::pair(ten, eleven), {eleven, ten}, {ten, whole}}) {
    auto groups = make(size, std::chrono::hours(1));
    run_ranks(groups, [&, sent = sent, expected = expected](ProcessGroup& group) {
      const auto error = error_of([&] {
        if (group.rank() == 0) group.send(sent, 1, 5)->wait();
        if (group.rank() == 1) group.recv(expected, 0, 5)->wait();
        group.barrier()->wait();
        group.barrier()->wait();
      });
      expect(error.code() == Errc::mismatch, error.what());
      for (const auto& said : {fmt::format("send of {} {}", sent.count, name_of(sent.dtype)),
                               fmt::format("recv of {} {}", expected.count, name_of(expected.dtype))}) {
        expect(std::string(error.what()).find(said) != std::string::npos, error.what());
      }
    });
  }
}

}  // namespace ddprun::contract

#include "worker/comm/backends/shm/shm_group.h"

#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "common/float16.h"
#include "worker/comm/registry/auto_group.h"
#include "tests/contract/store_groups.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

contract::Groups make_shm(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(comm::make_shm_group, size, timeout);
}

// The staging memory is small: large operations go in many chunks, which takes seconds on a busy machine.
contract::Groups make_with_small_slots(int size, std::chrono::milliseconds timeout) {
  const auto make = [](GroupOptions options) {
    options.config.staging_bytes = 16'384;
    return comm::make_shm_group(options);
  };
  return contract::make_groups(make, size, 4 * timeout);
}

}  // namespace

TEST_CASE("auto selects shared memory where ranks can share it") {
  const auto groups = contract::make_groups(comm::make_auto_group, 2, contract::test_timeout);
  CHECK(groups[0]->backend() == "shm");
  CHECK(groups[1]->backend() == "shm");
}

TEST_CASE("shared memory compares what is sent with what is expected") {
  struct Case {
    WorkPtr (*call)(ProcessGroup&, std::vector<float>&);
    const char* sent;
    const char* expected;
  };
  const Case cases[] = {
      {[](ProcessGroup& group, std::vector<float>& of) {
         if (group.rank() == 0) return group.send({of.data(), 2, DType::float32}, 1, 7);
         return group.recv({of.data(), 3, DType::float32}, 0, 7);
       },
       "send of 2 float32", "recv of 3 float32"},
      {[](ProcessGroup& group, std::vector<float>& of) {
         if (group.rank() == 0) return group.send({of.data(), 2, DType::float32}, 1, 7);
         return group.recv({of.data(), 2, DType::int32}, any_source, 7);
       },
       "send of 2 float32", "recv of 2 int32 from any rank"},
      {[](ProcessGroup& group, std::vector<float>& of) {
         const Counts received = group.rank() == 0 ? Counts{2, 1} : Counts{1, 2};
         return group.all_to_allv({of.data(), 4, DType::float32}, {2, 2}, {of.data() + 4, 3, DType::float32}, received);
       },
       "2 elements", "expects 1"},
  };
  for (const auto& each : cases) {
    auto groups = make_shm(2, std::chrono::hours(1));
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      std::vector<float> memory(8);
      const auto error = contract::error_of([&] { each.call(group, memory)->wait(); });
      contract::expect(error.code() == Errc::mismatch, error.what());
      for (const auto* part : {"rank 0", "rank 1", each.sent, each.expected}) {
        contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      }
    });
  }
}

TEST_CASE("a rank that only sends returns before its peers call the operation") {
  auto groups = make_shm(3, contract::test_timeout);
  for (int call = 0; call < 4; ++call) {
    std::vector<float> values{static_cast<float>(call)}, part{1};
    groups[0]->broadcast(span_of(values), 0, {.blocking = true});
    groups[0]->reduce(span_of(part), 2, {}, {.blocking = true});
    values[0] = part[0] = -1;  // the caller may reuse its memory
    groups[1]->broadcast(span_of(values), 0, {.blocking = true});
    CHECK(values[0] == static_cast<float>(call));
    part[0] = 10;
    groups[1]->reduce(span_of(part), 2, {}, {.blocking = true});
    groups[2]->broadcast(span_of(values), 0, {.blocking = true});
    CHECK(values[0] == static_cast<float>(call));
    part[0] = 100;
    groups[2]->reduce(span_of(part), 2, {}, {.blocking = true});
    CHECK(part[0] == 111);
  }
}

TEST_CASE("a call that differs from the others' is detected, even if no rank waited for it") {
  struct Case {
    std::size_t count;  // count of rank 1
    int root;
    bool blocking;
    const char* called;
  };
  for (const auto& [count, root, blocking, called] : {Case{4, 0, true, "broadcast of 4 float32 from rank 0"},
                                                      {4, 0, false, "broadcast of 4 float32 from rank 0"},
                                                      {3, 1, true, "broadcast of 3 float32 from rank 1"},
                                                      {3, 1, false, "broadcast of 3 float32 from rank 1"}}) {
    auto groups = make_shm(2, contract::test_timeout);
    const auto rank = [&](ProcessGroup& group) {
      const bool other = group.rank() == 1;
      std::vector<float> values(8);
      const auto error = contract::error_of([&] {
        for (int call = 0; call < 10; ++call)
          group.broadcast({values.data(), other ? count : 3, DType::float32}, other ? root : 0, {.blocking = blocking})
              ->wait();
        group.barrier({.blocking = blocking})->wait();
      });
      contract::expect(error.code() == Errc::mismatch, error.what());
      for (const auto* part : {"broadcast of 3 float32 from rank 0", called})
        contract::expect(std::string(error.what()).find(part) != std::string::npos, error.what());
    };
    REQUIRE_NOTHROW(contract::run_ranks(groups, rank));
  }
}

TEST_CASE("ranks that run ahead of each other receive only what is meant for them") {
  constexpr int ranks = 4, calls = 3000;
  auto groups = make_shm(ranks, contract::test_timeout);
  const auto rank = [](ProcessGroup& group) {
    std::mt19937 random(7);  // the sequence is the same at every rank
    struct Broadcast {
      std::vector<float> values;
      float expected;
      WorkPtr work;
      void finish() {
        work->wait();
        contract::expect(values.front() == expected && values.back() == expected, "broadcast");
      }
    };
    std::deque<Broadcast> in_flight;
    for (int call = 0; call < calls; ++call) {
      const int root = static_cast<int>(random() % ranks);
      const std::size_t count = 1 + random() % 600;  // payloads in the announcement and outside it
      const auto kind = random() % 4;
      const OpOptions options{.blocking = random() % 4 != 0};
      const auto own = static_cast<float>(call % 97 * (group.rank() + 1));
      const auto total = static_cast<float>(call % 97 * (ranks * (ranks + 1) / 2));
      std::vector<float> values(count, own);
      if (kind == 0) {
        group.reduce(span_of(values), root, {}, {.blocking = true});
        contract::expect(group.rank() != root || values[count - 1] == total, "reduce");
      } else if (kind == 1) {
        group.allreduce(span_of(values), {}, {.blocking = true});
        contract::expect(values[count - 1] == total, "allreduce");
      } else {
        auto& each =
            in_flight.emplace_back(Broadcast{std::move(values), static_cast<float>(call % 97 * (root + 1)), {}});
        each.work = group.broadcast(span_of(each.values), root, options);
        if (in_flight.size() < 5) continue;
        in_flight.front().finish();
        in_flight.pop_front();
      }
    }
    for (auto& each : in_flight) each.finish();
  };
  REQUIRE_NOTHROW(contract::run_ranks(groups, rank));
}

// 256 + 1 is 256 in bfloat16, and 256 + 1 + 1 + 1, rounded once, is 260.
TEST_CASE("sums of 16-bit floats are rounded once over shared memory, whichever protocol their size selects") {
  auto groups = make_shm(4, contract::test_timeout);
  for (const std::size_t count : {4u, 1'000u, 40'000u, 400'000u}) {
    contract::run_ranks(groups, [&](ProcessGroup& group) {
      const auto all = [&](std::size_t elements, float value) {
        return std::vector<std::uint16_t>(elements, bfloat16_from_float(value));
      };
      const auto span = [](std::vector<std::uint16_t>& values) {
        return Span{values.data(), values.size(), DType::bfloat16};
      };
      auto everywhere = all(count, group.rank() == 0 ? 256.0f : 1.0f), at_root = everywhere, input = everywhere;
      auto part = all(count / 4, 0);
      group.allreduce(span(everywhere))->wait();
      contract::expect(everywhere == all(count, 260), "allreduce");
      group.reduce(span(at_root), 2)->wait();
      contract::expect(at_root == (group.rank() == 2 ? all(count, 260) : input), "reduce");
      group.reduce_scatter(span(input), span(part))->wait();
      contract::expect(part == all(count / 4, 260), "reduce_scatter");
    });
  }
}

DDPRUN_GROUP_CONTRACT("shm", make_shm, {1, 2, 3, 4, 5, 8})

#define DDPRUN_SMALL_SLOTS(clause) \
  DDPRUN_GROUP_CLAUSE("shm with little staging memory:", make_with_small_slots, clause, {2, 3, 4, 5})
DDPRUN_SMALL_SLOTS(allreduce_does_not_change_its_input)
DDPRUN_SMALL_SLOTS(allreduce_results_are_bit_identical)
DDPRUN_SMALL_SLOTS(premultiplied_halves_are_rounded_once)
DDPRUN_SMALL_SLOTS(reduce_works_apart_from_its_input)
DDPRUN_SMALL_SLOTS(broadcast_copies_the_roots_values)
DDPRUN_SMALL_SLOTS(allgather_orders_by_rank)
DDPRUN_SMALL_SLOTS(allgatherv_takes_unequal_parts)
DDPRUN_SMALL_SLOTS(reduce_scatter_returns_each_ranks_block)
DDPRUN_SMALL_SLOTS(reduce_scatterv_takes_unequal_parts)
DDPRUN_SMALL_SLOTS(reduce_scatter_and_allgather_work_in_place)
DDPRUN_SMALL_SLOTS(gatherv_takes_unequal_parts)
DDPRUN_SMALL_SLOTS(scatterv_takes_unequal_parts)
DDPRUN_SMALL_SLOTS(all_to_all_exchanges_parts)
DDPRUN_SMALL_SLOTS(all_to_allv_takes_unequal_parts)
DDPRUN_SMALL_SLOTS(bytes_have_any_length_and_alignment)
DDPRUN_SMALL_SLOTS(consecutive_large_operations_do_not_interfere)
DDPRUN_SMALL_SLOTS(an_abort_at_any_point_ends_all_ranks)

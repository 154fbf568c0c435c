#include "worker/comm/health/recent_operations.h"

#include <memory>
#include <vector>

#include "worker/comm/process_group.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;
using State = RankOperation::State;

namespace {

Operation allreduce_of(std::size_t count) {
  return {.kind = OpKind::allreduce, .dtype = DType::float32, .count = count};
}

}  // namespace

TEST_CASE("a rank publishes the collectives around the one it is in") {
  const auto operation_log = std::make_unique<OperationLog>();
  CHECK(recent_operations(*operation_log, OperationLog::Clock::now()).empty());

  for (std::uint64_t sequence = 0; sequence < 10; ++sequence)
    operation_log->end(operation_log->begin(allreduce_of(sequence), sequence, 1s), sequence == 9);
  auto published = recent_operations(*operation_log, OperationLog::Clock::now());
  REQUIRE(published.size() == 8);
  CHECK(published[0].sequence == 2);
  CHECK(published[0].state == State::done);
  CHECK(published[7].state == State::failed);

  operation_log->begin(allreduce_of(100), 10, 1s);
  operation_log->submit(allreduce_of(200), 11, 1s);
  published = recent_operations(*operation_log, OperationLog::Clock::now() + 5s);
  REQUIRE(published.size() == 10);
  CHECK(published[8].sequence == 10);
  CHECK(published[8].state == State::started);
  CHECK(published[8].bytes == 400);
  CHECK(describe(published[8].description) == "allreduce(sum) of 100 float32");
  CHECK(published[8].age >= 5s);
  CHECK_FALSE(published[8].transfer());
  CHECK(published[9].state == State::submitted);
}

TEST_CASE("of many operations in progress the oldest are published") {
  const auto operation_log = std::make_unique<OperationLog>();
  for (std::uint64_t sequence = 0; sequence < 20; ++sequence) operation_log->begin(allreduce_of(1), sequence, 1s);
  const Operation send{.kind = OpKind::send, .dtype = DType::uint8, .count = 3, .peer = 1};
  for (std::uint64_t number = 1; number <= 20; ++number) operation_log->begin_transfer(send, number, 1s);
  const auto published = recent_operations(*operation_log, OperationLog::Clock::now());
  REQUIRE(published.size() == 16);
  CHECK(published.front().sequence == 0);
  CHECK_FALSE(published[11].transfer());
  CHECK(published[12].transfer());
  CHECK(describe(published[12].description) == "send of 3 uint8 to rank 1 with tag 0");
  CHECK(published[12].sequence == 1);
  CHECK(published[15].sequence == 4);
}

TEST_CASE("the oldest few messages with a known partner and number are compared") {
  const auto operation_log = std::make_unique<OperationLog>();
  const auto recv_from = [](int peer) {
    return Operation{.kind = OpKind::recv, .dtype = DType::uint8, .count = 3, .peer = peer};
  };
  operation_log->begin(allreduce_of(1), 0, 1s);
  operation_log->begin_transfer(recv_from(any_source), 1, 1s);
  operation_log->begin_transfer(recv_from(100), 0, 1s);
  const auto done = operation_log->begin_transfer(recv_from(101), 1, 1s);
  for (int rank = 0; rank < 50; ++rank) operation_log->begin_transfer(recv_from(rank), 7, 1s);
  operation_log->end(done);

  const auto now = OperationLog::Clock::now();
  CHECK(transfers_to_compare(*operation_log, now, 1h).empty());
  const auto chosen = transfers_to_compare(*operation_log, now + 2h, 1h);
  REQUIRE(chosen.size() == 4);  // as many as the partner publishes
  for (int i = 0; i < 4; ++i) CHECK(chosen[static_cast<std::size_t>(i)].operation.peer == i);
}

TEST_CASE("the oldest message with each partner is found") {
  const auto operation_log = std::make_unique<OperationLog>();
  const auto begin = [&](int peer, std::uint64_t number) {
    operation_log->begin_transfer({.kind = OpKind::recv, .dtype = DType::uint8, .count = 3, .peer = peer}, number, 1s);
  };
  operation_log->begin(allreduce_of(1), 0, 1s);
  begin(any_source, 1);
  for (std::uint64_t number = 1; number <= 20; ++number) begin(7, number);
  begin(3, 0);  // its number is unknown

  const auto now = OperationLog::Clock::now();
  CHECK(oldest_by_partner(*operation_log, now, 1h).empty());
  const auto oldest = oldest_by_partner(*operation_log, now + 2h, 1h);
  REQUIRE(oldest.size() == 2);
  CHECK(oldest[0].operation.peer == 3);
  CHECK(oldest[1].operation.peer == 7);
  CHECK(oldest[1].sequence == 1);
}

TEST_CASE("a receive from any source is found while it is in progress") {
  const auto operation_log = std::make_unique<OperationLog>();
  operation_log->begin(allreduce_of(1), 0, 1s);
  operation_log->begin_transfer({.kind = OpKind::recv, .dtype = DType::uint8, .count = 3, .peer = 2}, 1, 1s);
  CHECK_FALSE(receive_from_any(*operation_log));
  const auto slot = operation_log->begin_transfer(
      {.kind = OpKind::recv, .dtype = DType::uint8, .count = 3, .peer = any_source, .tag = 5}, 1, 1s);
  REQUIRE(receive_from_any(*operation_log));
  CHECK(receive_from_any(*operation_log)->operation.tag == 5);
  const auto stall = stall_of(4, *receive_from_any(*operation_log), OperationLog::Clock::now() + 5s);
  CHECK(stall.rank == 4);
  CHECK(stall.partner() == Stall::any_rank);
  CHECK(stall.seconds >= 5);
  operation_log->end(slot);
  CHECK_FALSE(receive_from_any(*operation_log));
}

TEST_CASE("descriptions agree exactly where the operations do") {
  const std::vector<Operation> operations = {
      allreduce_of(1),
      allreduce_of(2),
      {.kind = OpKind::allreduce, .dtype = DType::float32, .op = ReduceOp::max, .count = 1},
      {.kind = OpKind::allreduce, .dtype = DType::float64, .count = 1},
      {.kind = OpKind::allreduce, .dtype = DType::float32, .op = ReduceOp::premultiplied_sum, .count = 1, .factor = 2},
      {.kind = OpKind::allreduce, .dtype = DType::float32, .op = ReduceOp::premultiplied_sum, .count = 1, .factor = 3},
      {.kind = OpKind::allreduce, .dtype = DType::float32, .count = 1, .spans = 3, .layout = 7},
      {.kind = OpKind::allreduce, .dtype = DType::float32, .count = 1, .spans = 3, .layout = 8},
      {.kind = OpKind::broadcast, .dtype = DType::float32, .count = 1, .peer = 0},
      {.kind = OpKind::broadcast, .dtype = DType::float32, .count = 1, .peer = 1},
      {.kind = OpKind::allgather, .dtype = DType::float32, .count = 1, .parts = 5},
      {.kind = OpKind::allgather, .dtype = DType::float32, .count = 1, .parts = 6},
      {.kind = OpKind::all_to_all, .dtype = DType::float32, .count = 1, .parts = 5},
      {.kind = OpKind::all_to_all, .dtype = DType::float32, .count = 2, .parts = 6},
      {.kind = OpKind::all_to_all, .dtype = DType::float32, .count = 2},
      {.kind = OpKind::barrier}};
  for (const auto& one : operations) {
    for (const auto& other : operations) {
      INFO(describe(one) << " and " << describe(other));
      CHECK(agree(description_of(one), description_of(other)) == agree(one, other));
    }
  }
}

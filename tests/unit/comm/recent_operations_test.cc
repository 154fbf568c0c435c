#include "ddprun/worker/comm/health/recent_operations.h"

#include <memory>

#include "ddprun/worker/comm/process_group.h"
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

TEST_CASE("a rank tells of the collectives around the one it is in") {
  const auto operation_log = std::make_unique<OperationLog>();
  CHECK(recent_operations(*operation_log, OperationLog::Clock::now()).empty());

  for (std::uint64_t sequence = 0; sequence < 10; ++sequence)
    operation_log->end(operation_log->begin(allreduce_of(sequence), sequence, 1s), sequence == 9);
  auto told = recent_operations(*operation_log, OperationLog::Clock::now());
  REQUIRE(told.size() == 8);
  CHECK(told[0].sequence == 2);
  CHECK(told[0].state == State::done);
  CHECK(told[7].state == State::failed);

  operation_log->begin(allreduce_of(100), 10, 1s);
  operation_log->submit(allreduce_of(200), 11, 1s);
  told = recent_operations(*operation_log, OperationLog::Clock::now() + 5s);
  REQUIRE(told.size() == 10);
  CHECK(told[8].sequence == 10);
  CHECK(told[8].state == State::started);
  CHECK(told[8].bytes == 400);
  CHECK(told[8].text == "allreduce(sum) of 100 float32");
  CHECK(told[8].age >= 5s);
  CHECK_FALSE(told[8].transfer);
  CHECK(told[9].state == State::submitted);
}

TEST_CASE("the oldest of several in progress is told, and few of many") {
  const auto operation_log = std::make_unique<OperationLog>();
  for (std::uint64_t sequence = 0; sequence < 20; ++sequence) operation_log->begin(allreduce_of(1), sequence, 1s);
  const Operation send{.kind = OpKind::send, .dtype = DType::uint8, .count = 3, .peer = 1};
  for (std::uint64_t number = 1; number <= 20; ++number) operation_log->begin_transfer(send, number, 1s);
  const auto told = recent_operations(*operation_log, OperationLog::Clock::now());
  REQUIRE(told.size() == 16);
  CHECK(told.front().sequence == 0);
  CHECK_FALSE(told[11].transfer);
  CHECK(told[12].transfer);
  CHECK(told[12].text == "send of 3 uint8 to rank 1 with tag 0");
  CHECK(told[12].sequence == 1);
  CHECK(told[15].sequence == 4);
}

TEST_CASE("of the messages under way that an end can be found of, the oldest few are compared with it") {
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
  REQUIRE(chosen.size() == 4);  // as many as the other end tells of
  for (int i = 0; i < 4; ++i) CHECK(chosen[static_cast<std::size_t>(i)].operation.peer == i);
}

TEST_CASE("of all messages under way, the oldest with each partner is found") {
  const auto operation_log = std::make_unique<OperationLog>();
  const auto begin = [&](int peer, std::uint64_t number) {
    operation_log->begin_transfer({.kind = OpKind::recv, .dtype = DType::uint8, .count = 3, .peer = peer}, number, 1s);
  };
  operation_log->begin(allreduce_of(1), 0, 1s);
  begin(any_source, 1);
  for (std::uint64_t number = 1; number <= 20; ++number) begin(7, number);
  begin(3, 0);  // of a number that is not known

  const auto now = OperationLog::Clock::now();
  CHECK(oldest_by_partner(*operation_log, now, 1h).empty());
  const auto oldest = oldest_by_partner(*operation_log, now + 2h, 1h);
  REQUIRE(oldest.size() == 2);
  CHECK(oldest[0].operation.peer == 3);
  CHECK(oldest[1].operation.peer == 7);
  CHECK(oldest[1].sequence == 1);
}

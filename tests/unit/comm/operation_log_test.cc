#include "worker/comm/health/operation_log.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

Operation allreduce_of(std::size_t count) {
  return {.kind = OpKind::allreduce, .dtype = DType::float32, .count = count};
}
Operation send_of(std::size_t count) {
  return {.kind = OpKind::send, .dtype = DType::float32, .count = count, .peer = 1};
}

std::vector<OperationLog::Entry> in_progress(const OperationLog& operation_log) {
  std::vector<OperationLog::Entry> entries;
  operation_log.for_each_in_progress(
      [&](OperationLog::Slot, const OperationLog::Entry& entry) { entries.push_back(entry); });
  return entries;
}

}  // namespace

TEST_CASE("a collective goes from submitted to started to done") {
  const auto operation_log = std::make_unique<OperationLog>();
  CHECK(operation_log->sequence() == 0);
  CHECK_FALSE(operation_log->current());
  CHECK(operation_log->collectives(0, 5).empty());

  operation_log->submit(allreduce_of(10), 0, 7s);
  REQUIRE(operation_log->collectives(0, 5).size() == 1);
  CHECK(operation_log->collectives(0, 5)[0].state == OperationLog::State::submitted);
  CHECK(in_progress(*operation_log).empty());

  const auto before = OperationLog::Clock::now() - 100ms;  // the log's clock is coarse
  const auto slot = operation_log->begin(allreduce_of(10), 0, 7s);
  CHECK(operation_log->sequence() == 0);
  REQUIRE(in_progress(*operation_log).size() == 1);
  const auto entry = in_progress(*operation_log)[0];
  CHECK(entry.operation == allreduce_of(10));
  CHECK(entry.timeout == 7s);
  CHECK(entry.changed >= before);
  CHECK(entry.changed <= OperationLog::Clock::now());
  CHECK(entry.deadline() == entry.changed + 7s);

  operation_log->end(slot);
  CHECK(in_progress(*operation_log).empty());
  CHECK(operation_log->sequence() == 1);
  REQUIRE(operation_log->current());
  CHECK(operation_log->current()->state == OperationLog::State::done);

  operation_log->end(operation_log->begin(allreduce_of(20), 1, 7s), true);
  CHECK(operation_log->current()->state == OperationLog::State::failed);
  CHECK(operation_log->current()->operation.count == 20);
}

TEST_CASE("of several collectives in progress, the oldest is the current one") {
  const auto operation_log = std::make_unique<OperationLog>();
  const auto first = operation_log->begin(allreduce_of(1), 0, 1s),
             second = operation_log->begin(allreduce_of(2), 1, 1s);
  const auto third = operation_log->begin(allreduce_of(3), 2, 1s);
  CHECK(operation_log->sequence() == 0);
  operation_log->end(second);
  CHECK(operation_log->current()->operation.count == 1);
  operation_log->end(first);
  CHECK(operation_log->current()->operation.count == 3);
  CHECK(operation_log->sequence() == 2);
  operation_log->end(third);
  CHECK(operation_log->sequence() == 3);
  CHECK(operation_log->current()->state == OperationLog::State::done);
}

TEST_CASE("a collective is found by its number while it is kept") {
  const auto operation_log = std::make_unique<OperationLog>();
  CHECK_FALSE(operation_log->collective(0));
  operation_log->end(operation_log->begin(allreduce_of(10), 0, 1s));
  operation_log->submit(allreduce_of(20), 1, 1s);
  REQUIRE(operation_log->collective(0));
  CHECK(operation_log->collective(0)->operation.count == 10);
  REQUIRE(operation_log->collective(1));
  CHECK(operation_log->collective(1)->operation.count == 20);
  CHECK_FALSE(operation_log->collective(OperationLog::collectives_kept));
  operation_log->begin(allreduce_of(30), OperationLog::collectives_kept, 1s);
  CHECK_FALSE(operation_log->collective(0));
}

TEST_CASE("the log keeps the last collectives, and one that is far ahead is recorded when it starts") {
  const auto operation_log = std::make_unique<OperationLog>();
  constexpr auto kept = OperationLog::collectives_kept;
  const auto first = operation_log->begin(allreduce_of(1), 0, 1s);
  for (std::uint64_t sequence = 1; sequence <= kept + 3; ++sequence)
    operation_log->submit(allreduce_of(sequence + 1), sequence, 1s);
  REQUIRE(in_progress(*operation_log).size() == 1);
  CHECK(in_progress(*operation_log)[0].sequence == 0);

  operation_log->end(first);
  for (std::uint64_t sequence = 1; sequence <= kept + 3; ++sequence)
    operation_log->end(operation_log->begin(allreduce_of(sequence + 1), sequence, 1s));
  CHECK(operation_log->sequence() == kept + 4);
  const auto last = operation_log->collectives(kept, 4);
  REQUIRE(last.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(last[i].sequence == kept + i);
    CHECK(last[i].operation.count == kept + i + 1);
    CHECK(last[i].state == OperationLog::State::done);
  }
  CHECK(operation_log->collectives(0, 10 * kept).size() == kept);
}

TEST_CASE("transfers have slots of their own, and those beyond the limit are not recorded") {
  const auto operation_log = std::make_unique<OperationLog>();
  const auto collective = operation_log->begin(allreduce_of(1), 0, 1s);
  std::vector<OperationLog::Slot> slots;
  for (std::size_t i = 0; i < OperationLog::transfers_kept; ++i)
    slots.push_back(operation_log->begin_transfer(send_of(i + 1), i + 1, 1s));
  CHECK(in_progress(*operation_log).size() == OperationLog::transfers_kept + 1);
  CHECK(operation_log->begin_transfer(send_of(1), 1, 1s) == OperationLog::no_slot);
  operation_log->end(OperationLog::no_slot);

  operation_log->end(slots[7]);
  CHECK(operation_log->begin_transfer(send_of(1), 1, 1s) == slots[7]);
  for (const auto slot : slots) operation_log->end(slot);
  CHECK(in_progress(*operation_log).size() == 1);
  operation_log->end(collective);
  CHECK(in_progress(*operation_log).empty());
}

TEST_CASE("a reader never sees half of an entry, whichever threads write") {
  const auto operation_log = std::make_unique<OperationLog>();
  std::atomic<bool> stop = false;
  std::thread collectives([&] {
    for (std::uint64_t sequence = 0; !stop; ++sequence)
      operation_log->end(operation_log->begin(allreduce_of(sequence), sequence, std::chrono::milliseconds(sequence)));
  });
  std::vector<std::thread> senders;
  for (int i = 0; i < 2; ++i) {
    senders.emplace_back([&] {
      for (int tag = 0; !stop; ++tag) {
        auto operation = send_of(static_cast<std::size_t>(tag));
        operation.tag = tag;
        operation_log->end(
            operation_log->begin_transfer(operation, static_cast<std::uint64_t>(tag), std::chrono::milliseconds(tag)));
      }
    });
  }
  int seen = 0;
  int torn = 0;
  while (seen < 20'000) {
    for (OperationLog::Slot slot = 0; slot < OperationLog::no_slot; ++slot) {
      const auto entry = operation_log->read(slot);
      if (!entry) continue;
      ++seen;
      const auto count = entry->operation.count;
      const bool whole = entry->timeout.count() == static_cast<std::int64_t>(count) &&
                         (entry->operation.point_to_point() ? entry->operation.tag == static_cast<int>(count)
                                                            : entry->sequence == count);
      if (!whole) ++torn;
    }
    for (const auto& entry : operation_log->collectives(
             operation_log->sequence() - std::min<std::uint64_t>(operation_log->sequence(), 8), 8))
      if (entry.sequence != entry.operation.count) ++torn;
  }
  stop = true;
  collectives.join();
  for (auto& sender : senders) sender.join();
  CHECK(torn == 0);
}

#include "ddprun/worker/comm/watch/ledger.h"

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

std::vector<Ledger::Entry> in_progress(const Ledger& ledger) {
  std::vector<Ledger::Entry> entries;
  ledger.for_each_in_progress([&](Ledger::Place, const Ledger::Entry& entry) { entries.push_back(entry); });
  return entries;
}

}  // namespace

TEST_CASE("a collective goes from submitted to started to done") {
  const auto ledger = std::make_unique<Ledger>();
  CHECK(ledger->sequence() == 0);
  CHECK_FALSE(ledger->current());
  CHECK(ledger->collectives(0, 5).empty());

  ledger->submit(allreduce_of(10), 0, 7s);
  REQUIRE(ledger->collectives(0, 5).size() == 1);
  CHECK(ledger->collectives(0, 5)[0].state == Ledger::State::submitted);
  CHECK(in_progress(*ledger).empty());

  const auto before = Ledger::Clock::now() - 100ms;  // the ledger's clock is coarse
  const auto place = ledger->begin(allreduce_of(10), 0, 7s);
  CHECK(ledger->sequence() == 0);
  REQUIRE(in_progress(*ledger).size() == 1);
  const auto entry = in_progress(*ledger)[0];
  CHECK(entry.operation == allreduce_of(10));
  CHECK(entry.timeout == 7s);
  CHECK(entry.changed >= before);
  CHECK(entry.changed <= Ledger::Clock::now());
  CHECK(entry.deadline() == entry.changed + 7s);

  ledger->end(place);
  CHECK(in_progress(*ledger).empty());
  CHECK(ledger->sequence() == 1);
  REQUIRE(ledger->current());
  CHECK(ledger->current()->state == Ledger::State::done);

  ledger->end(ledger->begin(allreduce_of(20), 1, 7s), true);
  CHECK(ledger->current()->state == Ledger::State::failed);
  CHECK(ledger->current()->operation.count == 20);
}

TEST_CASE("of several collectives in progress, the oldest is what others may wait for") {
  const auto ledger = std::make_unique<Ledger>();
  const auto first = ledger->begin(allreduce_of(1), 0, 1s), second = ledger->begin(allreduce_of(2), 1, 1s);
  const auto third = ledger->begin(allreduce_of(3), 2, 1s);
  CHECK(ledger->sequence() == 0);
  ledger->end(second);
  CHECK(ledger->current()->operation.count == 1);
  ledger->end(first);
  CHECK(ledger->current()->operation.count == 3);
  CHECK(ledger->sequence() == 2);
  ledger->end(third);
  CHECK(ledger->sequence() == 3);
  CHECK(ledger->current()->state == Ledger::State::done);
}

TEST_CASE("a collective is found by its number while it is kept") {
  const auto ledger = std::make_unique<Ledger>();
  CHECK_FALSE(ledger->collective(0));
  ledger->end(ledger->begin(allreduce_of(10), 0, 1s));
  ledger->submit(allreduce_of(20), 1, 1s);
  REQUIRE(ledger->collective(0));
  CHECK(ledger->collective(0)->operation.count == 10);
  REQUIRE(ledger->collective(1));
  CHECK(ledger->collective(1)->operation.count == 20);
  CHECK_FALSE(ledger->collective(Ledger::collectives_kept));
  ledger->begin(allreduce_of(30), Ledger::collectives_kept, 1s);
  CHECK_FALSE(ledger->collective(0));
}

TEST_CASE("the ledger keeps the last collectives, and what is far ahead waits for its place") {
  const auto ledger = std::make_unique<Ledger>();
  constexpr auto kept = Ledger::collectives_kept;
  const auto first = ledger->begin(allreduce_of(1), 0, 1s);
  for (std::uint64_t sequence = 1; sequence <= kept + 3; ++sequence)
    ledger->submit(allreduce_of(sequence + 1), sequence, 1s);
  REQUIRE(in_progress(*ledger).size() == 1);
  CHECK(in_progress(*ledger)[0].sequence == 0);

  ledger->end(first);
  for (std::uint64_t sequence = 1; sequence <= kept + 3; ++sequence)
    ledger->end(ledger->begin(allreduce_of(sequence + 1), sequence, 1s));
  CHECK(ledger->sequence() == kept + 4);
  const auto last = ledger->collectives(kept, 4);
  REQUIRE(last.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(last[i].sequence == kept + i);
    CHECK(last[i].operation.count == kept + i + 1);
    CHECK(last[i].state == Ledger::State::done);
  }
  CHECK(ledger->collectives(0, 10 * kept).size() == kept);
}

TEST_CASE("transfers are kept beside collectives, as many at a time as there is room for") {
  const auto ledger = std::make_unique<Ledger>();
  const auto collective = ledger->begin(allreduce_of(1), 0, 1s);
  std::vector<Ledger::Place> places;
  for (std::size_t i = 0; i < Ledger::transfers_kept; ++i)
    places.push_back(ledger->begin_transfer(send_of(i + 1), i + 1, 1s));
  CHECK(in_progress(*ledger).size() == Ledger::transfers_kept + 1);
  CHECK(ledger->begin_transfer(send_of(1), 1, 1s) == Ledger::nowhere);
  ledger->end(Ledger::nowhere);

  ledger->end(places[7]);
  CHECK(ledger->begin_transfer(send_of(1), 1, 1s) == places[7]);
  for (const auto place : places) ledger->end(place);
  CHECK(in_progress(*ledger).size() == 1);
  ledger->end(collective);
  CHECK(in_progress(*ledger).empty());
}

TEST_CASE("a reader never sees half of an entry, whoever writes") {
  const auto ledger = std::make_unique<Ledger>();
  std::atomic<bool> stop = false;
  std::thread collectives([&] {
    for (std::uint64_t sequence = 0; !stop; ++sequence)
      ledger->end(ledger->begin(allreduce_of(sequence), sequence, std::chrono::milliseconds(sequence)));
  });
  std::vector<std::thread> senders;
  for (int i = 0; i < 2; ++i) {
    senders.emplace_back([&] {
      for (int tag = 0; !stop; ++tag) {
        auto operation = send_of(static_cast<std::size_t>(tag));
        operation.tag = tag;
        ledger->end(ledger->begin_transfer(operation, static_cast<std::uint64_t>(tag), std::chrono::milliseconds(tag)));
      }
    });
  }
  int seen = 0;
  int torn = 0;
  while (seen < 20'000) {
    for (Ledger::Place place = 0; place < Ledger::nowhere; ++place) {
      const auto entry = ledger->read(place);
      if (!entry) continue;
      ++seen;
      const auto count = entry->operation.count;
      const bool whole = entry->timeout.count() == static_cast<std::int64_t>(count) &&
                         (entry->operation.point_to_point() ? entry->operation.tag == static_cast<int>(count)
                                                            : entry->sequence == count);
      if (!whole) ++torn;
    }
    for (const auto& entry :
         ledger->collectives(ledger->sequence() - std::min<std::uint64_t>(ledger->sequence(), 8), 8))
      if (entry.sequence != entry.operation.count) ++torn;
  }
  stop = true;
  collectives.join();
  for (auto& sender : senders) sender.join();
  CHECK(torn == 0);
}

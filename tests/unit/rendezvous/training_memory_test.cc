#include "rendezvous/progress/training_memory.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <thread>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

TrainingPublisher publisher_for(const TrainingMemory& memory, int local_rank) {
  return TrainingPublisher(memory.address() + ":" + std::to_string(local_rank));
}

// Returns a record in which all numbers are the same.
TrainingRecord record_of(std::int64_t number) {
  TrainingRecord record{.time_ms = number, .step = number};
  record.data = static_cast<double>(number);
  record.step_counts.back() = number;
  return record;
}

}  // namespace

TEST_CASE("each worker's record arrives as it was published, and none before the first") {
  const TrainingMemory memory(3);
  CHECK_FALSE(memory.read(0));
  auto first = publisher_for(memory, 0);
  auto last = publisher_for(memory, 2);
  CHECK_FALSE(memory.read(0));
  first.publish({.pid = 7, .time_ms = 1, .step = 3, .loss = 0.5});
  last.publish({.pid = 9, .time_ms = 2});
  REQUIRE(memory.read(0));
  CHECK(memory.read(0)->pid == 7);
  CHECK(memory.read(0)->step == 3);
  CHECK(memory.read(0)->loss == 0.5);
  CHECK(std::isnan(memory.read(0)->gradient_norm));
  CHECK_FALSE(memory.read(1));
  CHECK(memory.read(2)->pid == 9);
  CHECK_FALSE(memory.read(3));
}

TEST_CASE("records that were cleared are gone") {
  TrainingMemory memory(1);
  publisher_for(memory, 0).publish(record_of(4));
  REQUIRE(memory.read(0));
  memory.clear();
  CHECK_FALSE(memory.read(0));
}

TEST_CASE("a worker that was killed while it wrote leaves the record before, and its successor continues") {
  const TrainingMemory memory(1);
  auto publisher = publisher_for(memory, 0);
  publisher.publish(record_of(1));
  publisher.publish(record_of(2));
  // The page is as the next publication leaves it halfway: the older of two copies, each a number and a record, has an
  // odd number.
  const UniqueFd file(::open(memory.address().c_str(), O_RDWR | O_CLOEXEC));
  const SharedPages page(file.get(), 0, 4096);
  const auto older = page.data() + sizeof(std::uint64_t) + sizeof(TrainingRecord);
  std::memset(older, 0xff, sizeof(std::uint64_t) + sizeof(TrainingRecord));
  const std::uint64_t odd = 5;
  std::memcpy(older, &odd, sizeof(odd));
  REQUIRE(memory.read(0));
  CHECK(memory.read(0)->step == 2);
  auto successor = publisher_for(memory, 0);
  CHECK(memory.read(0)->step == 2);
  for (std::int64_t number = 3; number <= 5; ++number) {
    successor.publish(record_of(number));
    CHECK(memory.read(0)->step == number);
  }
}

TEST_CASE("a reader never gets parts of two records") {
  const TrainingMemory memory(1);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    auto publisher = publisher_for(memory, 0);
    for (std::int64_t number = 1; number <= 200'000; ++number) publisher.publish(record_of(number));
    done = true;
  });
  std::int64_t torn = 0;
  while (!done) {
    const auto record = memory.read(0);
    if (!record) continue;
    const auto number = record->time_ms;
    if (record->step != number || record->data != static_cast<double>(number) || record->step_counts.back() != number)
      ++torn;
  }
  writer.join();
  CHECK(torn == 0);
  CHECK(memory.read(0)->step == 200'000);
}

TEST_CASE("an address that is none, and memory of another size, are refused") {
  const TrainingMemory memory(1);
  CHECK_THROWS_AS(TrainingPublisher("/proc/self/fd/0"), Error);
  CHECK_THROWS_AS(TrainingPublisher(memory.address() + ":x"), Error);
  CHECK_THROWS_AS(TrainingPublisher(memory.address() + ":-1"), Error);
  CHECK_THROWS_WITH(TrainingPublisher(memory.address() + ":1"), Catch::Contains("not the memory of an agent"));
  CHECK_THROWS_AS(TrainingPublisher("/proc/self/fd/9999:0"), Error);
}

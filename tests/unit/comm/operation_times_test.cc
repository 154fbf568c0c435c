#include "worker/comm/health/operation_times.h"

#include "worker/comm/health/operation_log.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

Operation allreduce_of(std::size_t count) {
  return {.kind = OpKind::allreduce, .dtype = DType::float32, .count = count};
}

}  // namespace

TEST_CASE("times are kept by kind and size, with a median exact to a few percent") {
  OperationTimes times;
  for (int i = 0; i < 9; ++i) times.add(allreduce_of(1000), 100us);
  for (int i = 0; i < 4; ++i) times.add(allreduce_of(1000), 5ms);
  times.add(allreduce_of(1'000'000), 3ms);
  times.add({.kind = OpKind::barrier}, 1us);
  const auto read = times.read();
  REQUIRE(read.size() == 3);
  CHECK(read[0].kind == "allreduce");  // the one with the longest sum first
  CHECK(read[0].bytes == 4000);
  CHECK(read[0].count == 13);
  CHECK(read[0].seconds == Approx(0.0209));
  CHECK(read[0].median == Approx(1e-4).epsilon(0.06));
  CHECK(read[1].bytes == 4'000'000);
  CHECK(read[1].median == Approx(3e-3).epsilon(0.06));
  CHECK(read[2].kind == "barrier");
}

TEST_CASE("a record has those kinds and sizes that take longest, and no more") {
  OperationTimes times;
  for (int size = 0; size < 20; ++size)
    times.add(allreduce_of(std::size_t{1} << size), std::chrono::microseconds(size));
  CHECK(times.read().size() == OperationTiming::most);
  CHECK(times.read().front().bytes == std::uint64_t{4} << 19);
}

TEST_CASE("one collective in eight is timed, in whatever pattern a step repeats them") {
  for (const std::uint64_t period : {1, 2, 5, 8, 16, 64}) {
    CAPTURE(period);
    int chosen = 0;
    for (std::uint64_t step = 0; step < 8000; ++step) chosen += OperationTimes::chosen(step * period) ? 1 : 0;
    CHECK(chosen > 800);
    CHECK(chosen < 1200);
  }
}

TEST_CASE("the log of operations times collectives that end well, and no messages") {
  OperationLog log;
  for (std::uint64_t sequence = 0; sequence < 64; ++sequence) log.end(log.begin(allreduce_of(8), sequence, 1s), true);
  CHECK(log.timings().empty());
  log.end(log.begin_transfer({.kind = OpKind::send, .count = 8}, 1, 1s));
  CHECK(log.timings().empty());
  for (std::uint64_t sequence = 64; sequence < 128; ++sequence) log.end(log.begin(allreduce_of(8), sequence, 1s));
  REQUIRE(log.timings().size() == 1);
  CHECK(log.timings()[0].count >= 6);
  CHECK(log.timings()[0].count <= 10);
  CHECK(log.timings()[0].bytes == 32);
}

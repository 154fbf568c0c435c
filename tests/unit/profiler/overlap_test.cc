#include "worker/profiler/overlap.h"

#include "tests/support/catch.h"

using namespace ddprun::profiler;
using namespace std::chrono_literals;

TEST_CASE("reductions that end before the last gradient are hidden, the last one cannot be") {
  const auto overlap = overlap_of({{{.ready = {10ms, 20ms, 30ms}, .ended = {14ms, 24ms, 34ms}}}});
  REQUIRE(overlap);
  CHECK(overlap->communication == 12ms);
  CHECK(overlap->hideable == 8ms);
  CHECK(overlap->hidden == 8ms);
}

TEST_CASE("a reduction begins when the one before it has ended") {
  const auto overlap = overlap_of({{{.ready = {10ms, 20ms, 30ms}, .ended = {35ms, 40ms, 45ms}}}});
  REQUIRE(overlap);
  CHECK(overlap->communication == 35ms);
  CHECK(overlap->hideable == 20ms);  // the part before 30 ms
  CHECK(overlap->hidden == 20ms);
}

TEST_CASE("what reductions take longer than in another step could have been hidden") {
  const ReducedStep quick{.ready = {10ms, 20ms}, .ended = {14ms, 24ms}};
  const ReducedStep slow{.ready = {110ms, 120ms}, .ended = {125ms, 127ms}};
  const auto overlap = overlap_of({{quick, slow}});
  REQUIRE(overlap);
  CHECK(overlap->communication == 12ms);  // 4 ms and 2 ms in each step
  CHECK(overlap->hideable == 8ms);
  CHECK(overlap->hidden == 2ms);  // out of 6 ms each; 4 ms and 7 ms were exposed
}

TEST_CASE("a reduction begins when all ranks have their gradients, and waiting for them is no communication") {
  const Time late = 100ms;
  const ReducedStep quick{.ready = {10ms, 20ms}, .ended = {late + 14ms, late + 24ms}};
  const ReducedStep slow{.ready = {late + 10ms, late + 20ms}, .ended = {late + 14ms, late + 24ms}};
  for (const std::size_t rank : {0, 1}) {
    const auto overlap = overlap_of({{quick}, {slow}}, rank);
    REQUIRE(overlap);
    CHECK(overlap->communication == 8ms);
    CHECK(overlap->hideable == 4ms);
    CHECK(overlap->hidden == 4ms);
  }
}

TEST_CASE("there is no replay of ranks or steps that differ, and of none") {
  const ReducedStep one{.ready = {1ms}, .ended = {2ms}}, two{.ready = {1ms, 2ms}, .ended = {2ms, 3ms}};
  CHECK_FALSE(overlap_of({}));
  CHECK_FALSE(overlap_of({{}}));
  CHECK_FALSE(overlap_of({{ReducedStep{}}}));
  CHECK_FALSE(overlap_of({{one}, {two}}));
  CHECK_FALSE(overlap_of({{one, two}}));
  CHECK_FALSE(overlap_of({{one}, {one, one}}));
}

#include "ddprun/worker/comm/health/freeze_detector.h"

#include "tests/support/catch.h"

using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

const FreezeDetector::Clock::time_point start{1000h};

// Looks each half second from begin to end.
void look_until(FreezeDetector& watch, std::uint64_t beats, std::chrono::milliseconds begin,
                std::chrono::milliseconds end) {
  for (auto t = begin; t <= end; t += 500ms) watch.look(beats, start + t);
}

}  // namespace

TEST_CASE("a counter that stands still for the bound is of a frozen peer") {
  FreezeDetector watch(5s);
  look_until(watch, 7, 0ms, 2000ms);
  CHECK_FALSE(watch.suspicious());
  look_until(watch, 7, 2500ms, 4500ms);
  CHECK(watch.suspicious());
  CHECK_FALSE(watch.frozen());
  watch.look(7, start + 5s);
  CHECK(watch.frozen());
  CHECK(watch.silence() == 5s);
}

TEST_CASE("a counter that grows, and a peer that has not come yet, are no silence") {
  FreezeDetector watch(5s);
  for (std::uint64_t i = 0; i < 100; ++i) {
    watch.look(i / 5, start + i * 900ms);
    CHECK_FALSE(watch.frozen());
  }
  FreezeDetector joining(5s);
  for (int i = 0; i < 100; ++i) {
    joining.look(std::nullopt, start + i * 500ms);
    CHECK_FALSE(joining.suspicious());
  }
}

TEST_CASE("who did not look cannot tell whose silence it was") {
  FreezeDetector watch(5s);
  look_until(watch, 7, 0ms, 4500ms);
  watch.look(7, start + 60s);
  CHECK_FALSE(watch.suspicious());
  look_until(watch, 7, 60500ms, 65000ms);
  CHECK(watch.frozen());
}

TEST_CASE("another peer is watched anew") {
  FreezeDetector watch(5s);
  look_until(watch, 7, 0ms, 4500ms);
  watch.restart();
  watch.look(7, start + 5s);
  CHECK_FALSE(watch.suspicious());
}

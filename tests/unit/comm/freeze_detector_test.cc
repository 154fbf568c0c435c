#include "worker/comm/health/freeze_detector.h"

#include "tests/support/catch.h"

using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

const FreezeDetector::Clock::time_point start{1000h};
constexpr auto interval = 500ms;

// Observes at each interval from begin to end.
void look_until(FreezeDetector& detector, std::uint64_t beats, std::chrono::milliseconds begin,
                std::chrono::milliseconds end) {
  for (auto t = begin; t <= end; t += interval) detector.look(beats, start + t);
}

}  // namespace

TEST_CASE("a peer is frozen whose counter does not change for the bound") {
  FreezeDetector detector(5s, interval);
  look_until(detector, 7, 0ms, 2000ms);
  CHECK_FALSE(detector.suspicious());
  look_until(detector, 7, 2500ms, 4500ms);
  CHECK(detector.suspicious());
  CHECK_FALSE(detector.frozen());
  detector.look(7, start + 5s);
  CHECK(detector.frozen());
  CHECK(detector.silence() == 5s);
}

TEST_CASE("a counter that grows is no silence, nor is a peer that has not published yet") {
  FreezeDetector detector(5s, interval);
  for (std::uint64_t i = 0; i < 100; ++i) {
    detector.look(i / 5, start + i * 900ms);
    CHECK_FALSE(detector.frozen());
  }
  FreezeDetector joining(5s, interval);
  for (int i = 0; i < 100; ++i) {
    joining.look(std::nullopt, start + i * 500ms);
    CHECK_FALSE(joining.suspicious());
  }
}

TEST_CASE("the time in which the observer did not run is no silence of the peer") {
  FreezeDetector detector(5s, interval);
  look_until(detector, 7, 0ms, 1000ms);
  detector.look(7, start + 60s);
  CHECK(detector.silence() == 1s + interval);
  look_until(detector, 7, 60500ms, 63000ms);
  CHECK_FALSE(detector.frozen());
  look_until(detector, 7, 63500ms, 63500ms);
  CHECK(detector.frozen());
}

TEST_CASE("an observer that always looks late finds a frozen peer as well") {
  FreezeDetector detector(5s, interval);
  for (int i = 0; i <= 10; ++i) {
    CHECK_FALSE(detector.frozen());
    detector.look(7, start + i * 3s);
  }
  CHECK(detector.frozen());
}

TEST_CASE("for another peer the detector starts over") {
  FreezeDetector detector(5s, interval);
  look_until(detector, 7, 0ms, 4500ms);
  detector.restart();
  detector.look(7, start + 5s);
  CHECK_FALSE(detector.suspicious());
}

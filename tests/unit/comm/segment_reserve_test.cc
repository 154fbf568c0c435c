#include "worker/comm/memory/segment_reserve.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pages.h"

using namespace ddprun::comm;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

bool has_pages(const SharedSegment& segment) {
  return ddprun::testing::has_pages(segment.data(), segment.bytes());
}

bool is_zero(const SharedSegment& segment) {
  return std::all_of(segment.data(), segment.data() + segment.bytes(),
                     [](std::byte each) { return each == std::byte{}; });
}

void wait_until_held(const SegmentReserve& reserve, std::size_t bytes) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (reserve.held() != bytes) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("the next group's segments are made ahead, with their pages: as many as the present one has taken") {
  SegmentReserve reserve({.rest = 0ms});
  std::vector<SharedSegment> first;
  for (const std::size_t bytes : {mib, mib, 3 * mib}) first.push_back(reserve.take(bytes));
  for (const auto& each : first) CHECK_FALSE(has_pages(each));
  wait_until_held(reserve, 5 * mib);
  for (const auto& each : first) std::memset(each.data(), 1, each.bytes());

  reserve.begin_group();
  std::vector<SharedSegment> second;
  for (const std::size_t bytes : {3 * mib, mib, mib}) second.push_back(reserve.take(bytes));
  for (const auto& each : second) {
    CHECK(has_pages(each));
    CHECK(is_zero(each));  // no segment of the first group is among them
  }
}

TEST_CASE("segments that the next group did not take are freed once the limit is reached") {
  SegmentReserve reserve({.most_bytes = 4 * mib, .rest = 0ms});
  const auto first = reserve.take(4 * mib);
  wait_until_held(reserve, 4 * mib);
  reserve.begin_group();
  const auto second = reserve.take(2 * mib);
  CHECK_FALSE(has_pages(second));
  wait_until_held(reserve, 2 * mib);
}

TEST_CASE("no more is made ahead than the limit allows") {
  SegmentReserve reserve({.most_bytes = 3 * mib, .rest = 0ms});
  const auto large = reserve.take(4 * mib);
  const auto small = reserve.take(2 * mib);
  const auto other = reserve.take(2 * mib);
  wait_until_held(reserve, 2 * mib);
  reserve.begin_group();
  CHECK_FALSE(has_pages(reserve.take(4 * mib)));
  CHECK(has_pages(reserve.take(2 * mib)));
}

TEST_CASE("nothing is made for a group that has just taken segments, and a reserve that waits ends at once") {
  SegmentReserve reserve({.rest = 1h});
  const auto taken = reserve.take(mib);
  CHECK(reserve.held() == 0);
  reserve.begin_group();
  CHECK_FALSE(has_pages(reserve.take(mib)));
}

#include "common/random.h"

#include <array>
#include <set>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("random digits have the size that was asked for and differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const auto digits = random_hex(16);
    CHECK(digits.size() == 32);
    CHECK(digits.find_first_not_of("0123456789abcdef") == std::string::npos);
    seen.insert(digits);
  }
  CHECK(seen.size() == 100);
  CHECK(random_hex(0).empty());
}

TEST_CASE("all bytes are filled with random numbers") {
  std::array<unsigned char, 1000> bytes{};
  fill_random(bytes);
  std::set<unsigned char> values(bytes.end() - 500, bytes.end());
  CHECK(values.size() > 100);  // 256 values are possible; fewer in one of 10^40 runs
}

TEST_CASE("seeds differ") {
  std::set<unsigned> seen;
  for (int i = 0; i < 4; ++i) seen.insert(random_seed());
  CHECK(seen.size() > 1);  // all the same in one of 10^28 runs
}

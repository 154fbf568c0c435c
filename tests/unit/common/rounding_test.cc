#include "common/rounding.h"

#include <limits>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("any number is rounded to an integer") {
  CHECK(rounded(2.5) == 3);
  CHECK(rounded(-2.4) == -2);
  CHECK(rounded(1e300) == 1'000'000'000'000'000'000);
  CHECK(rounded(-1e300) == -1'000'000'000'000'000'000);
  CHECK(rounded(std::numeric_limits<double>::infinity()) == 1'000'000'000'000'000'000);
  CHECK(rounded(std::numeric_limits<double>::quiet_NaN()) == 0);
}

#include "common/first_names.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("of many names the first are listed, and how many more there are") {
  CHECK(first_names({}).empty());
  CHECK(first_names({"a"}) == "a");
  CHECK(first_names({"a", "b", "c"}, 3) == "a, b, c");
  CHECK(first_names({"a", "b", "c", "d", "e"}, 3) == "a, b, c and 2 more");
  CHECK(first_names({"a", "b", "c", "d", "e", "f"}) == "a, b, c, d, e and 1 more");
}

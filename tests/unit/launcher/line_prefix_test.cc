#include "ddprun/launcher/output/line_prefix.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("the prefix of a line is torchrun's default or follows a template") {
  CHECK(line_prefix(default_line_prefix, "default", 3, 11) == "[default3]:");
  CHECK(line_prefix("<${rank}|$local_rank|${role_name}>", "r", 3, 11) == "<11|3|r>");
  CHECK(line_prefix("$ranks ${other} ${rank $$ $", "r", 3, 11) == "$ranks ${other} ${rank $ $");
  CHECK(line_prefix("", "r", 0, 0).empty());
}

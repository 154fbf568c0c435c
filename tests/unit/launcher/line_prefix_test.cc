#include "launcher/output/line_prefix.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("the prefix of a line is torchrun's default or follows a template") {
  const PrefixValues worker{.role = "r", .local_rank = 3, .rank = 11, .host = "node7"};
  CHECK(line_prefix(default_line_prefix, {.role = "default", .local_rank = 3, .rank = 11, .host = "h"}) ==
        "[default3]:");
  CHECK(line_prefix("<${rank}|$local_rank|${role_name}>", worker) == "<11|3|r>");
  CHECK(line_prefix("${hostname}:$rank:$hostname ", worker) == "node7:11:node7 ");
  CHECK(line_prefix("$ranks ${other} ${rank $$ $", worker) == "$ranks ${other} ${rank $ $");
  CHECK(line_prefix("", worker).empty());
}

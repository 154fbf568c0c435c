#include "ddprun/launcher/output/line_filter.h"

#include "ddprun/launcher/output/line_prefix.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a filter keeps the lines that contain any of its texts, prefix in front") {
  LineFilter filter({"loss", "a,b"}, "[p]:");
  std::string out;
  filter.feed("step 1\nlo", out);
  CHECK(out.empty());
  filter.feed("ss 2\nx a,b\r\n[p]\nthe loss", out);
  CHECK(out == "[p]:loss 2\n[p]:x a,b\r\n");
  filter.flush(out);
  CHECK(out == "[p]:loss 2\n[p]:x a,b\r\n[p]:the loss\n");
}

TEST_CASE("a filter takes each state of a redrawn line by itself") {
  LineFilter filter({"50%"}, "");
  std::string out;
  filter.feed("10%\r50%\r90%\n", out);
  CHECK(out == "50%\r");
}

TEST_CASE("the prefix of a line is torchrun's, or made from a template") {
  const PrefixValues worker{.role = "r", .local_rank = 3, .rank = 11, .host = "node7"};
  CHECK(line_prefix(default_line_prefix, {.role = "default", .local_rank = 3, .rank = 11, .host = "h"}) ==
        "[default3]:");
  CHECK(line_prefix("<${rank}|$local_rank|${role_name}>", worker) == "<11|3|r>");
  CHECK(line_prefix("${hostname}:$rank:$hostname ", worker) == "node7:11:node7 ");
  CHECK(line_prefix("$ranks ${other} ${rank $$ $", worker) == "$ranks ${other} ${rank $ $");
  CHECK(line_prefix("", worker).empty());
}

#include "common/log.h"

#include <string>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("log lines are printable, whatever they quote, and keep newlines and tabs") {
  std::string written;
  log::set_writer([&](std::string_view line) { written = line; });
  log::error("line 1 is '{}'\n\tusage", "\x1b]0;title\x07\xfe");
  CHECK(written == "[ddprun] error: line 1 is '\\x1b]0;title\\x07\\xfe'\n\tusage\n");
  log::error("{}", std::string(100'000, 'x'));
  CHECK(written.size() > 100'000);
  log::set_writer(nullptr);
}

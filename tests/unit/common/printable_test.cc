#include "ddprun/common/printable.h"

#include "ddprun/common/log.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("printable keeps text, newlines and UTF-8, and escapes control characters and other bytes") {
  CHECK(printable("") == "");
  CHECK(printable("a \\ b\n\tc") == "a \\ b\n\tc");
  CHECK(printable("Zürich 東京 🚂") == "Zürich 東京 🚂");
  CHECK(printable("\x1b[31mred\x1b[0m\r") == "\\x1b[31mred\\x1b[0m\\x0d");
  CHECK(printable(std::string_view("\0\x7f", 2)) == "\\x00\\x7f");
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");                               // a control character beyond ASCII
  CHECK(printable("\xc0\xaf \xe0\x80\x80") == "\\xc0\\xaf \\xe0\\x80\\x80");  // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");                      // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");             // beyond Unicode
  CHECK(printable("ends \xe6\x9d") == "ends \\xe6\\x9d");
}

TEST_CASE("log lines are printable, whatever they quote") {
  std::string written;
  log::set_writer([&](std::string_view line) { written = line; });
  log::error("line 1 is '{}'", "\x1b]0;title\x07\xfe");
  log::set_writer(nullptr);
  CHECK(written == "[ddprun] error: line 1 is '\\x1b]0;title\\x07\\xfe'\n");
}

TEST_CASE("a quotation within a line escapes newlines and tabs too") {
  CHECK(printable_line("epochs = 3 # größer, 数") == "epochs = 3 # größer, 数");
  CHECK(printable_line("\x1b[2J\a\n\t\x7f") == "\\x1b[2J\\x07\\x0a\\x09\\x7f");
}

TEST_CASE("a long quotation is cut between characters") {
  CHECK(printable_line("abcdef", 6) == "abcdef");
  CHECK(printable_line("abcdefg", 6) == "abcdef...");
  CHECK(printable_line("abcdeü", 6) == "abcde...");
  CHECK(printable_line("abcd\x01", 6) == "abcd...");
}

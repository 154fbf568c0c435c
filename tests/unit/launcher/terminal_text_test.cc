#include "launcher/output/terminal_text.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("one line keeps text and colours only") {
  CHECK(one_line_text("a\x1b[Kb\x1b[2Ac\bd\x1b(B\ae") == "abcde");
  CHECK(one_line_text("\x1b[31mred\x1b[0m") == "\x1b[31mred\x1b[0m");
  CHECK(one_line_text("\x1b[31mred") == "\x1b[31mred\x1b[0m");
  CHECK(one_line_text("\x1b]0;title\atext") == "text");
  CHECK(one_line_text("\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\") == "\x1b]8;;http://h\x1b\\link\x1b]8;;\x1b\\");
  CHECK(one_line_text("cut short\x1b[3") == "cut short");
  CHECK(one_line_text("cut short\x1b") == "cut short");
  CHECK(plain_text("\x1b[31mr\x1b[0md\t") == "rd\t");
}

TEST_CASE("columns are characters, not bytes") {
  CHECK(columns_of("\xe2\x96\x88\xe2\x96\x88|\x1b[31m") == 3);
  CHECK(one_line_text("\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88", 2) == "\xe2\x96\x88\xe2\x96\x88");
  CHECK(one_line_text("\x1b[31mlong\x1b[0m text", 2) == "\x1b[31mlo\x1b[0m");
  CHECK(one_line_text("a\tb", 8) == "a");
}

TEST_CASE("a redrawn line counts as it was drawn last") {
  CHECK(after_last_redraw("\r10%\r20%\r") == "20%");
  CHECK(after_last_redraw("plain") == "plain");
  CHECK(after_last_redraw("\r").empty());
}

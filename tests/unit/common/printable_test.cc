#include "ddprun/common/printable.h"

#include "tests/support/catch.h"

using ddprun::printable;

TEST_CASE("text is unchanged, also beyond ASCII") {
  CHECK(printable("") == "");
  CHECK(printable("key = \"a\\b\" # 100 %") == "key = \"a\\b\" # 100 %");
  CHECK(printable("Größe \u20ac \U0001f600") == "Größe \u20ac \U0001f600");
}

TEST_CASE("control characters become hexadecimal") {
  CHECK(printable("a\tb\r\n") == "a\\x09b\\x0d\\x0a");
  CHECK(printable("\x1b[2J\x7f") == "\\x1b[2J\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("\xc2\x9b[2J") == "\\xc2\\x9b[2J");  // U+009B is a terminal's CSI
}

TEST_CASE("bytes that are not UTF-8 become hexadecimal") {
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("a\x80z") == "a\\x80z");
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");                    // cut off
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  CHECK(printable("\xe2z") == "\\xe2z");
}

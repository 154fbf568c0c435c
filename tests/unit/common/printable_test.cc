#include "common/printable.h"

#include "tests/support/catch.h"

using ddprun::printable;

TEST_CASE("text stays, and bytes that a terminal would act on are escaped") {
  CHECK(printable("") == "");
  CHECK(printable("epochs = 3 # größer, 数") == "epochs = 3 # größer, 数");
  CHECK(printable("\x1b[2J\a\n\x7f") == "\\x1b[2J\\x07\\x0a\\x7f");
  CHECK(printable(std::string_view("\0a", 2)) == "\\x00a");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");                                        // a control character of two bytes
  CHECK(printable("\xff\xc3") == "\\xff\\xc3");                                      // no UTF-8; a sequence cut short
  CHECK(printable("\xe0\x80\x9b\xed\xa0\x80") == "\\xe0\\x80\\x9b\\xed\\xa0\\x80");  // overlong; a surrogate
  CHECK(printable("\xf0\x9f\x98\x80\xf4\x90\x80\x80") == "\xf0\x9f\x98\x80\\xf4\\x90\\x80\\x80");
}

TEST_CASE("bytes that are not UTF-8 are escaped in a JSON text, and all else stays") {
  using ddprun::valid_json;
  CHECK(valid_json(R"({"a": "größer 数 \n"})") == R"({"a": "größer 数 \n"})");
  CHECK(valid_json("[\"h\xff\", \"\xc3\"]") == R"(["h\\xff", "\\xc3"])");
  CHECK(valid_json("\"\xed\xa0\x80\"") == R"("\\xed\\xa0\\x80")");  // a surrogate
}

TEST_CASE("long text is cut between characters") {
  CHECK(printable("abcdef", 6) == "abcdef");
  CHECK(printable("abcdefg", 6) == "abcdef...");
  CHECK(printable("abcdeü", 6) == "abcde...");
  CHECK(printable("abcd\x01", 6) == "abcd...");
}

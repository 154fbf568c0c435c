#include "worker/tokenizer/words.h"

#include "tests/support/catch.h"

using namespace ddprun::tokenizer;

namespace {

using Words = std::vector<std::string_view>;

}  // namespace

TEST_CASE("a word takes the blank before it, and numbers, signs and contractions are words of their own") {
  CHECK(split_words("").empty());
  CHECK(split_words("Hello world") == Words{"Hello", " world"});
  CHECK(split_words("I'm 42, they'll see!") == Words{"I", "'m", " 42", ",", " they", "'ll", " see", "!"});
  CHECK(split_words("it's 'quoted' DON'T") == Words{"it", "'s", " '", "quoted", "'", " DON", "'", "T"});
  CHECK(split_words("x1") == Words{"x", "1"});
}

TEST_CASE("white space before a word leaves its last character to the word") {
  CHECK(split_words("a   b") == Words{"a", "  ", " b"});
  CHECK(split_words("a \n b") == Words{"a", " \n", " b"});
  CHECK(split_words("a\n\nb") == Words{"a", "\n", "\n", "b"});
  CHECK(split_words("a\tb") == Words{"a", "\t", "b"});
  CHECK(split_words("a   ") == Words{"a", "   "});
  CHECK(split_words(" ") == Words{" "});
}

TEST_CASE("letters, numbers and white space are Unicode's") {
  CHECK(split_words("na\u00efve \u4f60\u597d\u0663") == Words{"na\u00efve", " \u4f60\u597d", "\u0663"});
  CHECK(split_words("\u00bd\u2167 \U0001f600") == Words{"\u00bd\u2167", " \U0001f600"});
  CHECK(split_words("a\u3000\u00a0b") == Words{"a", "\u3000", "\u00a0", "b"});
  CHECK(split_words("e\u0301") == Words{"e", "\u0301"});  // a combining mark is no letter
}

TEST_CASE("bytes that are not UTF-8 are signs, and no byte is lost") {
  CHECK(split_words("a\xff\xfe"
                    "b") == Words{"a", "\xff\xfe", "b"});
  CHECK(split_words("\xe4\xbd") == Words{"\xe4\xbd"});
  CHECK(split_words(" \xc3 a") == Words{" \xc3", " a"});
}

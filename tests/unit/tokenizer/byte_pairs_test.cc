#include "worker/tokenizer/byte_pairs.h"

#include <array>
#include <string>

#include <fmt/ranges.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "worker/digest/sha256.h"
#include "worker/tokenizer/byte_level.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::tokenizer;
using ddprun::testing::TempDir;

namespace {

#include "tests/unit/tokenizer/tokenizer_figures.inc"

// The strings are those of scripts/make-tokenizer-figures.
constexpr std::int64_t training_strings = 2000, strings = 10'000, block = 500;

constexpr std::string_view pieces[] = {"the",
                                       "The",
                                       "THE",
                                       "ing",
                                       "don't",
                                       "we'll",
                                       "I'm",
                                       "they've",
                                       "'s",
                                       "'",
                                       "''",
                                       "tokens",
                                       "of",
                                       "a",
                                       "x1",
                                       "3.14",
                                       "2024",
                                       "007",
                                       " ",
                                       "  ",
                                       "   ",
                                       "\n",
                                       "\n\n",
                                       "\t",
                                       " \n ",
                                       "\r\n",
                                       ".",
                                       ",",
                                       "...",
                                       "!?",
                                       "(",
                                       ")",
                                       "--",
                                       "#",
                                       "&&",
                                       "\u00a0",
                                       "\u2003",
                                       "\u3000",
                                       "\u200b",
                                       "\xc2\x85",
                                       "na\u00efve",
                                       "\u00bd",
                                       "\u2167",
                                       "\u0663\u0664",
                                       "\u0301",
                                       "e\u0301",
                                       "\U0001f600",
                                       "\U0001f1e9\U0001f1ea",
                                       "\u4f60\u597d",
                                       "\ud55c\uad6d\uc5b4",
                                       "\u0e44\u0e17\u0e22",
                                       "\u041f\u0440\u0438\u0432\u0435\u0442",
                                       "\u0645\u0631\u062d\u0628\u0627",
                                       "\u05e9\u05dc\u05d5\u05dd",
                                       "\u0928\u092e\u0938\u094d\u0924\u0947",
                                       "\x01",
                                       "\x7f"};
constexpr std::array<unsigned, 2> ranges[] = {{0x20, 0x7e},     {0xa0, 0x17f},      {0x391, 0x3a1},    {0x3b1, 0x3c9},
                                              {0x410, 0x44f},   {0x5d0, 0x5ea},     {0x621, 0x63a},    {0x660, 0x669},
                                              {0x905, 0x939},   {0x966, 0x96f},     {0x2010, 0x2027},  {0x2070, 0x2071},
                                              {0x2150, 0x2182}, {0x2190, 0x21ff},   {0x3041, 0x3096},  {0x4e00, 0x9fa5},
                                              {0xac00, 0xd7a3}, {0x1d400, 0x1d454}, {0x1f600, 0x1f640}};

class Random {
 public:
  explicit Random(std::int64_t seed) : state_(static_cast<std::uint64_t>(seed)) {}
  std::size_t below(std::size_t bound) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33) % bound;
  }

 private:
  std::uint64_t state_;
};

void append_point(std::string& text, unsigned point) {
  const auto add = [&](unsigned byte) { text += static_cast<char>(byte); };
  if (point < 0x80) return add(point);
  if (point < 0x800) {
    add(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      add(0xE0 | point >> 12);
    } else {
      add(0xF0 | point >> 18);
      add(0x80 | (point >> 12 & 0x3F));
    }
    add(0x80 | (point >> 6 & 0x3F));
  }
  add(0x80 | (point & 0x3F));
}

std::string string_of(std::int64_t number) {
  Random random(number);
  std::string text;
  for (auto left = random.below(13); left > 0; --left) {
    if (random.below(4) == 0) {
      const auto [first, last] = ranges[random.below(std::size(ranges))];
      for (auto points = 1 + random.below(4); points > 0; --points)
        append_point(text, first + static_cast<unsigned>(random.below(last - first + 1)));
    } else {
      text += pieces[random.below(std::size(pieces))];
    }
    if (random.below(2) == 0) text += ' ';
  }
  return text;
}

const BytePairs& trained() {
  static const BytePairs pairs = [] {
    std::string text;
    for (std::int64_t i = 0; i < training_strings; ++i) text += string_of(i);
    return train_byte_pairs(text, 1000);
  }();
  return pairs;
}

std::string digest(const std::string& text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::vector<std::string> lines_of(const BytePairs& pairs) {
  std::vector<std::string> lines;
  for (const auto& [left, right, result] : pairs.merges())
    lines.push_back(to_byte_level(pairs.decode(left)) + " " + to_byte_level(pairs.decode(right)));
  return lines;
}

std::string error_of(const std::string& vocabulary, const std::string& merges) {
  try {
    parse_byte_pairs(vocabulary, merges, "vocab.json", "merges.txt");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "no error";
}

// Returns a vocabulary of the bytes and further tokens.
std::string vocabulary_with(const std::string& more) {
  std::string text = "{";
  int number = 0;
  for (const unsigned char byte : bytes_in_order()) {
    const std::string token = to_byte_level(std::string(1, static_cast<char>(byte)));
    text += fmt::format("\"{}{}\": {}, ", token == "\"" || token == "\\" ? "\\" : "", token, number++);
  }
  text.resize(text.size() - 2);
  return text + more + "}";
}

}  // namespace

TEST_CASE("training finds the vocabulary and the merges of Hugging Face's trainer") {
  std::vector<std::string> vocabulary;
  for (const auto& token : trained().tokens()) vocabulary.push_back(to_byte_level(token));
  CHECK(vocabulary.size() == 1000);
  CHECK(digest(fmt::format("{}", fmt::join(vocabulary, "\n"))) == vocabulary_digest);
  CHECK(digest(fmt::format("{}", fmt::join(lines_of(trained()), "\n"))) == merges_digest);
}

TEST_CASE("10,000 strings have the tokens of Hugging Face's byte-level BPE, which decode to them") {
  for (std::size_t i = 0; i < first_encodings.size(); ++i) {
    INFO(string_of(training_strings + static_cast<std::int64_t>(i)));
    CHECK(trained().encode(string_of(training_strings + static_cast<std::int64_t>(i))) == first_encodings[i]);
  }
  REQUIRE(std::ssize(block_digests) == strings / block);
  for (std::int64_t begin = 0; begin < strings; begin += block) {
    std::string text;
    for (std::int64_t i = begin; i < begin + block; ++i) {
      const std::string string = string_of(training_strings + i);
      const auto tokens = trained().encode(string);
      if (trained().decode(tokens) != string) FAIL("string " << i << " decodes to another");
      text += fmt::format("{}\n", fmt::join(tokens, " "));
    }
    CHECK(digest(text) == block_digests[static_cast<std::size_t>(begin / block)]);
  }
}

TEST_CASE("bytes that are no text are encoded and decoded as well") {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  bytes += bytes + "\xe4\xbd";
  CHECK(trained().decode(trained().encode(bytes)) == bytes);
  CHECK(from_byte_level(to_byte_level(bytes)) == bytes);
  CHECK(to_byte_level(" a\n") == "\u0120a\u010a");
  CHECK_FALSE(from_byte_level("a b"));
  CHECK_FALSE(from_byte_level("\xc4"));
}

TEST_CASE("a word of a million letters is encoded, and decodes to them") {
  const std::string word(1 << 20, 'a');
  CHECK(trained().decode(trained().encode(word)) == word);
}

TEST_CASE("training ends where no pair is left") {
  const auto pairs = train_byte_pairs("ab ab ab", 300);
  CHECK(pairs.size() == 258);
  CHECK(lines_of(pairs) == std::vector<std::string>{"a b", "\u0120 ab"});
  CHECK(train_byte_pairs("", 300).size() == 256);
}

TEST_CASE("byte pairs are written as Hugging Face's files and read again") {
  const TempDir dir;
  save_byte_pairs(trained(), dir / "gpt/bpe");
  const auto read = load_byte_pairs(dir / "gpt/bpe");
  CHECK(read.tokens() == trained().tokens());
  CHECK(lines_of(read) == lines_of(trained()));
  CHECK(read_whole_file(dir / "gpt/bpe/merges.txt").starts_with("#version: 0.2\n"));
  CHECK(read_whole_file(dir / "gpt/bpe/vocab.json").starts_with("{\"!\":0,\"\\\"\":1,\"#\":2,"));
  CHECK_THROWS_WITH(load_byte_pairs(dir / "none"), Catch::Contains("none/vocab.json"));
}

TEST_CASE("a token that is no bytes stands for its characters") {
  const auto pairs = parse_byte_pairs(vocabulary_with(", \"end of text\": 256"), "", "v", "m");
  CHECK(pairs.decode(256) == "end of text");
  CHECK(pairs.encode("ab").size() == 2);
}

TEST_CASE("files that are no byte pairs are errors that name the file and what is wrong") {
  CHECK_THAT(error_of("{", ""), Catch::StartsWith("vocab.json: it is not valid JSON"));
  CHECK(error_of("[]", "") == "vocab.json: not a JSON object");
  CHECK(error_of("{\"a\": 0}", "") == "vocab.json: the vocabulary has no token for the byte 0");
  CHECK(error_of("{\"a\": 0, \"b\": 0}", "") == "vocab.json: token b has no number of its own from 0 to 1");
  CHECK(error_of("{\"a\": -1}", "") == "vocab.json: token a has no number of its own from 0 to 0");
  CHECK(error_of("{\"a\": \"x\"}", "") == "vocab.json: token a has no number of its own from 0 to 0");
  const auto vocabulary = vocabulary_with(", \"ab\": 256");
  CHECK(error_of(vocabulary, "#version: 0.2\na b\n") == "no error");
  CHECK(error_of(vocabulary, "#version: 0.2\na b\na c\n") == "merges.txt:3: ac is no token of the vocabulary");
  CHECK(error_of(vocabulary, "ab\n") == "merges.txt:1: expected two tokens with a blank between them");
  CHECK(error_of(vocabulary, "a b c\n") == "merges.txt:1: expected two tokens with a blank between them");
}

#include "worker/tokenizer/words.h"

#include <array>
#include <cstdint>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace ddprun::tokenizer {
namespace {

enum class Kind : std::uint8_t { letter, number, space, sign };

struct Character {
  Kind kind;
  std::size_t bytes;
};

Kind kind_of(UChar32 point) {
  const auto categories = U_MASK(u_charType(point));
  if ((categories & U_GC_L_MASK) != 0) return Kind::letter;
  if ((categories & U_GC_N_MASK) != 0) return Kind::number;
  return u_isUWhiteSpace(point) ? Kind::space : Kind::sign;
}

// REQUIRES: at < text.size()
Character character(std::string_view text, std::size_t at) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  std::size_t next = at;
  UChar32 point = 0;
  U8_NEXT(bytes, next, text.size(), point);
  if (point < 0) return {Kind::sign, 1};
  return {kind_of(point), next - at};
}

// Returns the end of the characters of one kind that begin here.
std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind) {
  while (at < text.size()) {
    const auto next = character(text, at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

// Returns the length, or 0 if none begins here.
std::size_t contraction(std::string_view text) {
  static constexpr std::array<std::string_view, 7> all{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const auto each : all)
    if (text.starts_with(each)) return each.size();
  return 0;
}

// Returns the end of white space without its last character, which may belong to a word; at the end of a text all.
std::size_t end_of_space(std::string_view text, std::size_t begin) {
  std::size_t at = begin, last = begin;
  while (at < text.size()) {
    const auto next = character(text, at);
    if (next.kind != Kind::space) return last == begin ? at : last;
    last = at;
    at += next.bytes;
  }
  return at;
}

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  if (const auto length = contraction(text.substr(begin)); length > 0) return begin + length;
  const std::size_t first = begin + (text[begin] == ' ' ? 1 : 0);
  if (first < text.size())
    if (const auto kind = character(text, first).kind; kind != Kind::space) return end_of_run(text, first, kind);
  return end_of_space(text, begin);
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace ddprun::tokenizer

#include "ddprun/common/printable.h"

#include <fmt/core.h>

namespace ddprun {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// How many bytes the UTF-8 character at the start of text has; 0 when there is none, or when it is a control character
// (U+0080 to U+009F are control characters of their own).
std::size_t character_length(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return (lead >= 0x20 && lead != 0x7f) || lead == '\n' || lead == '\t' ? 1 : 0;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte_at(text, 1);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool out_of_range = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
  const bool control = lead == 0xc2 && second < 0xa0;
  return overlong || out_of_range || control ? 0 : length;
}

bool is_space(std::string_view character) {
  return character == "\n" || character == "\t";
}

// The character at the start of text as it is shown; text moves on behind it.
std::string take_character(std::string_view& text, bool keep_spaces) {
  const auto length = character_length(text);
  const bool keep = length > 0 && (keep_spaces || !is_space(text.substr(0, 1)));
  auto shown = keep ? std::string(text.substr(0, length)) : fmt::format("\\x{:02x}", byte_at(text, 0));
  text.remove_prefix(keep ? length : 1);
  return shown;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) result += take_character(text, true);
  return result;
}

std::string printable_line(std::string_view text, std::size_t limit) {
  std::string result;
  while (!text.empty()) {
    const auto shown = take_character(text, false);
    if (result.size() + shown.size() > limit) return result + "...";
    result += shown;
  }
  return result;
}

}  // namespace ddprun

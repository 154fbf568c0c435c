#include "common/printable.h"

#include <algorithm>

#include <fmt/format.h>

namespace ddprun {
namespace {

// The length of the UTF-8 sequence at the front of text, 0 when there is none.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xc2 && first < 0xe0   ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : length;
}

// The length of such a sequence, 0 also for a control character.
std::size_t printable_sequence(std::string_view text) {
  const auto length = utf8_sequence(text);
  const auto first = static_cast<unsigned char>(text.front());
  if (length == 1) return first >= 0x20 && first != 0x7f ? 1 : 0;
  return first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0 ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty()) {
    const auto length = printable_sequence(text);
    const auto piece = length > 0 ? std::string(text.substr(0, length))
                                  : fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    if (out.size() + piece.size() > limit) return out + "...";
    out += piece;
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

std::string valid_json(std::string text) {
  std::size_t valid = 0;
  while (valid < text.size()) {
    const auto length = utf8_sequence(std::string_view(text).substr(valid));
    if (length == 0) {
      const auto escape = fmt::format("\\\\x{:02x}", static_cast<unsigned char>(text[valid]));
      text.replace(valid, 1, escape);
    }
    valid += std::max<std::size_t>(length, 1);
  }
  return text;
}

}  // namespace ddprun

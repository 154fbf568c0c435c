#include "worker/tokenizer/byte_level.h"

#include <cstddef>

namespace ddprun::tokenizer {
namespace {

constexpr bool is_printed_as_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// Code points by byte: the byte's own, or those from 256 on.
struct Alphabet {
  std::array<char16_t, 256> point_of{};
  std::array<unsigned char, 324> byte_of{};
  std::array<bool, 324> known{};

  constexpr Alphabet() {
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const unsigned point = is_printed_as_itself(byte) ? byte : next++;
      point_of[byte] = static_cast<char16_t>(point);
      byte_of[point] = static_cast<unsigned char>(byte);
      known[point] = true;
    }
  }
};
constexpr Alphabet alphabet;

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const unsigned point = alphabet.point_of[static_cast<unsigned char>(byte)];
    if (point < 0x80) {
      text += static_cast<char>(point);
    } else {  // two bytes of UTF-8
      text += static_cast<char>(0xC0 | (point >> 6));
      text += static_cast<char>(0x80 | (point & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned point = static_cast<unsigned char>(text[at]);
    if (point >= 0x80) {
      if ((point & 0xE0) != 0xC0 || ++at == text.size()) return std::nullopt;
      const auto low = static_cast<unsigned char>(text[at]);
      if ((low & 0xC0) != 0x80) return std::nullopt;
      point = (point & 0x1F) << 6 | (low & 0x3F);
    }
    if (point >= alphabet.known.size() || !alphabet.known[point]) return std::nullopt;
    bytes += static_cast<char>(alphabet.byte_of[point]);
  }
  return bytes;
}

std::array<unsigned char, 256> bytes_in_order() {
  std::array<unsigned char, 256> bytes{};
  std::size_t count = 0;
  for (std::size_t point = 0; point < alphabet.known.size(); ++point)
    if (alphabet.known[point]) bytes[count++] = alphabet.byte_of[point];
  return bytes;
}

}  // namespace ddprun::tokenizer

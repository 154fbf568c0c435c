#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::tokenizer {

// Writes bytes as text in GPT-2's way: each byte is a character that can be printed, "A" for A, "Ġ" for a blank.
std::string to_byte_level(std::string_view bytes);
// Returns none for a text with other characters.
std::optional<std::string> from_byte_level(std::string_view text);

// Returns all bytes in the order of their characters: the first 256 tokens of GPT-2.
std::array<unsigned char, 256> bytes_in_order();

}  // namespace ddprun::tokenizer

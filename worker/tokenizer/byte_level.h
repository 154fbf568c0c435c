#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::tokenizer {

// GPT-2's way of writing bytes as text: each byte is a character that can be printed, "A" for A, "Ġ" for a blank.
std::string to_byte_level(std::string_view bytes);
// None for a text with other characters.
std::optional<std::string> from_byte_level(std::string_view text);

// All bytes in the order of their characters: the first 256 tokens of GPT-2.
std::array<unsigned char, 256> bytes_in_order();

}  // namespace ddprun::tokenizer

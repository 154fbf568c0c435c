#pragma once

#include <cctype>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ddprun::testing {

// Bytes from hexadecimal digits, such as "00 CE f7"; blanks are ignored.
inline std::string from_hex(std::string_view text) {
  std::string digits, bytes;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) digits.push_back(c);
  if (digits.size() % 2 != 0) throw std::runtime_error("odd number of hex digits: " + std::string(text));
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace ddprun::testing

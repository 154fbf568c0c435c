#include "rendezvous/trust/secret.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <openssl/crypto.h>

#include "common/error.h"
#include "common/random.h"

namespace ddprun {
namespace {

void overwrite(Secret::Bytes& bytes) {
  ::explicit_bzero(bytes.data(), bytes.size());
}

std::optional<unsigned char> digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<unsigned char>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<unsigned char>(digit - 'a' + 10);
  return std::nullopt;
}

}  // namespace

Secret::Secret(Bytes& bytes) : bytes_(bytes) {
  overwrite(bytes);
}

Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) {
  overwrite(other.bytes_);
}

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  overwrite(other.bytes_);
  return *this;
}

Secret::~Secret() {
  overwrite(bytes_);
}

Secret Secret::random() {
  Bytes bytes{};
  fill_random(bytes);
  return Secret(bytes);
}

Secret Secret::from_hex(std::string_view digits) {
  if (digits.size() != 2 * size)
    throw make_error(Errc::usage, "a token has {} hexadecimal digits, and this text has {} characters", 2 * size,
                     digits.size());
  Bytes bytes{};
  for (std::size_t i = 0; i < size; ++i) {
    const auto high = digit_value(digits[2 * i]), low = digit_value(digits[2 * i + 1]);
    if (!high || !low) {
      overwrite(bytes);
      throw make_error(Errc::usage, "a token has {} hexadecimal digits (0-9, a-f) and nothing else", 2 * size);
    }
    bytes[i] = static_cast<unsigned char>(*high * 16 + *low);
  }
  return Secret(bytes);
}

SecretText::SecretText(std::string& text) : text_(text) {
  wipe(text);
}

SecretText SecretText::hex_of(const Secret& secret) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * Secret::size);  // a string that grows would leave a copy behind
  for (const unsigned char byte : secret.bytes()) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return SecretText(text);
}

SecretText::SecretText(SecretText&& other) noexcept : text_(other.text_) {
  wipe(other.text_);
}

SecretText& SecretText::operator=(SecretText&& other) noexcept {
  if (this == &other) return *this;
  wipe(text_);
  text_.swap(other.text_);
  return *this;
}

SecretText::~SecretText() {
  wipe(text_);
}

void wipe(std::string& text) {
  text.resize(text.capacity());
  ::explicit_bzero(text.data(), text.size());
  text.clear();
}

bool equal_in_constant_time(std::span<const unsigned char> a, std::span<const unsigned char> b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  const auto bytes = [](std::string_view text) {
    return std::span(reinterpret_cast<const unsigned char*>(text.data()), text.size());
  };
  return equal_in_constant_time(bytes(a), bytes(b));
}

}  // namespace ddprun

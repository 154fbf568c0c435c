#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// 256 secret bits: the token of a job, or a key derived from it. Move-only; the memory is cleared when the object is
// destroyed or moved from.
//
// Ownership: owns its bytes. Threads: immutable apart from moves. Errors: see each function.
class Secret {
 public:
  static constexpr std::size_t size = 32;
  using Bytes = std::array<unsigned char, size>;

  // Takes the bytes and clears the original.
  explicit Secret(Bytes& bytes);
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret();
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  // Reads the kernel's random generator. Throws Errc::io.
  static Secret random();
  // 64 hexadecimal digits. Throws Errc::usage, without the text.
  static Secret from_hex(std::string_view digits);

  std::span<const unsigned char, size> bytes() const { return bytes_; }

 private:
  Bytes bytes_{};
};

// A text with a secret in it, cleared when it is destroyed. Move-only; a text that has been moved from is empty.
class SecretText {
 public:
  SecretText() = default;
  // Takes the text and clears the original.
  explicit SecretText(std::string& text);
  // The digits of Secret::from_hex().
  static SecretText hex_of(const Secret& secret);
  SecretText(SecretText&& other) noexcept;
  SecretText& operator=(SecretText&& other) noexcept;
  ~SecretText();
  SecretText(const SecretText&) = delete;
  SecretText& operator=(const SecretText&) = delete;

  std::string_view view() const { return text_; }

 private:
  std::string text_;
};

// Clears the whole buffer of the text, which is empty afterwards.
void wipe(std::string& text);

// Compares in a time that depends only on the sizes.
bool equal_in_constant_time(std::span<const unsigned char> a, std::span<const unsigned char> b);
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace ddprun

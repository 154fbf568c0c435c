#include "worker/digest/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ddprun {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed
constexpr std::size_t word = sizeof(std::uint64_t);

using Table = std::array<std::uint32_t, 256>;

// Entry b of table k is the remainder of byte b followed by k zero bytes, so that eight bytes take eight independent
// look-ups.
constexpr std::array<Table, word> make_tables() {
  std::array<Table, word> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < word; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  return tables;
}

constexpr std::array<Table, word> tables = make_tables();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, word);  // little-endian, as the CRC takes it
  return value;
}

std::uint32_t add_by_table(std::uint32_t crc, std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= word; left -= word, at += word) {
    const std::uint64_t value = word_at(at) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < word; ++k) crc ^= tables[word - 1 - k][(value >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t add_by_instruction(std::uint32_t crc,
                                                                   std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t value = crc;
  for (; left >= word; left -= word, at += word) value = _mm_crc32_u64(value, word_at(at));
  crc = static_cast<std::uint32_t>(value);
  for (; left > 0; --left, ++at) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*at));
  return crc;
}
#endif

std::uint32_t add(std::uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return add_by_instruction(crc, bytes);
#endif
  return add_by_table(crc, bytes);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~add(~before, bytes);
}

std::uint32_t crc32c(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes)));
}

std::uint32_t crc32c_without_instruction(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~add_by_table(~before, bytes);
}

}  // namespace ddprun

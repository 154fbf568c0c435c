#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ddprun {

// The CRC with Castagnoli's polynomial (RFC 3720, appendix B.4), which finds damage by chance, not by intent. It uses
// the processor's instruction where there is one: several GB/s.
std::uint32_t crc32c(std::string_view bytes);
// before: the CRC of the bytes that come before these; 0 if there are none.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// Computes the same by tables, as processors without the instruction do.
std::uint32_t crc32c_without_instruction(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace ddprun

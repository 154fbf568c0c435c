#pragma once

#include <cstdint>
#include <string_view>

namespace ddprun {

// The CRC with Castagnoli's polynomial (RFC 3720, appendix B.4), which finds damage by chance, not by intent.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace ddprun

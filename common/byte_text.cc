#include "common/byte_text.h"

#include <fmt/core.h>

namespace ddprun {

std::string byte_text(std::size_t bytes) {
  constexpr std::size_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;
  if (bytes >= gib) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / gib);
  if (bytes >= mib) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / mib);
  if (bytes >= kib) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kib);
  return fmt::format("{} bytes", bytes);
}

}  // namespace ddprun

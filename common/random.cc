#include "common/random.h"

#include <array>
#include <bit>
#include <cerrno>
#include <sys/random.h>
#include <vector>

#include "common/error.h"

namespace ddprun {

void fill_random(std::span<unsigned char> bytes) {
  while (!bytes.empty()) {
    const auto got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    else if (errno != EINTR)
      throw make_error(Errc::io, "no random numbers: getrandom: {}", errno_text(errno));
  }
}

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> random(bytes);
  fill_random(random);
  std::string text;
  for (const auto byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

unsigned random_seed() {
  std::array<unsigned char, sizeof(unsigned)> bytes;
  fill_random(bytes);
  return std::bit_cast<unsigned>(bytes);
}

}  // namespace ddprun

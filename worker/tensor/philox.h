#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace ddprun {

// Four random numbers as a function of index, stream and seed: ten rounds of Philox4x32 with the constants of Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). It serves devices too.
struct PhiloxBlock {
  std::uint32_t numbers[4];
};

DDPRUN_HOST_DEVICE PhiloxBlock philox(std::uint64_t index, std::uint64_t stream, std::uint64_t seed) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  PhiloxBlock block{{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  std::uint32_t(&x)[4] = block.numbers;
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * x[0], product1 = multiplier1 * x[2];
    x[0] = static_cast<std::uint32_t>(product1 >> 32) ^ x[1] ^ key0;
    x[1] = static_cast<std::uint32_t>(product1);
    x[2] = static_cast<std::uint32_t>(product0 >> 32) ^ x[3] ^ key1;
    x[3] = static_cast<std::uint32_t>(product0);
    key0 += weyl0;
    key1 += weyl1;
  }
  return block;
}

// Returns a number in [0, 1), of 24 bits.
DDPRUN_HOST_DEVICE float uniform_float(std::uint32_t number) {
  return static_cast<float>(number >> 8) * 0x1.0p-24F;
}

}  // namespace ddprun

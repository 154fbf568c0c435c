#pragma once

#include <cstdint>

namespace ddprun {

// How many descriptors this process may have open.
struct DescriptorLimit {
  std::uint64_t before = 0;  // what a program that it starts should be given: some are written for few
  std::uint64_t now = 0;
};

// Raises it to the most that the system permits.
DescriptorLimit raise_descriptor_limit();

}  // namespace ddprun

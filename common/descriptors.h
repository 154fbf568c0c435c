#pragma once

#include <cstdint>

namespace ddprun {

// The limit of open file descriptors (RLIMIT_NOFILE).
struct DescriptorLimit {
  std::uint64_t before = 0;  // restore it in child processes: some programs cannot handle a high one
  std::uint64_t now = 0;
};

// Raises the soft limit to the hard limit.
DescriptorLimit raise_descriptor_limit();

}  // namespace ddprun

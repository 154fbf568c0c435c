#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace ddprun::cuda {

// Division of numbers from 0 on by a number that is known before the kernel starts. Below 2^31 it is a multiplication
// (Granlund and Montgomery 1994), as a device has no instruction that divides integers.
class Divider {
 public:
  Divider() = default;
  explicit Divider(std::int64_t divisor) : divisor_(divisor) {
    if (divisor >= limit) return;
    while ((std::int64_t{1} << shift_) < divisor) ++shift_;
    magic_ = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - static_cast<std::uint64_t>(divisor))) /
            static_cast<std::uint64_t>(divisor) +
        1);
  }

  DDPRUN_HOST_DEVICE std::int64_t quotient(std::int64_t value) const {
    if (value >= limit || divisor_ >= limit) return value / divisor_;
    const auto narrow = static_cast<std::uint32_t>(value);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{narrow} * magic_) >> 32);
    return (high + narrow) >> shift_;
  }
  DDPRUN_HOST_DEVICE std::int64_t divisor() const { return divisor_; }

 private:
  static constexpr std::int64_t limit = std::int64_t{1} << 31;

  std::int64_t divisor_ = 1;
  std::uint32_t magic_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace ddprun::cuda

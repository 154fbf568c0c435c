#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/host_device.h"

// The 16-bit floating-point formats in memory: IEEE 754 binary16 and bfloat16, the upper half of a float32. They are
// for storage: arithmetic converts to float32 and rounds the result to nearest even. The code has no branches, so that
// loops over it vectorize.
namespace ddprun {

template <class To, class From>
DDPRUN_HOST_DEVICE constexpr To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

DDPRUN_HOST_DEVICE constexpr float float_from_bfloat16(std::uint16_t bits) {
  return bits_as<float>(std::uint32_t{bits} << 16);
}

DDPRUN_HOST_DEVICE constexpr std::uint16_t bfloat16_from_float(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t not_a_number = (bits >> 16) | 0x40;
  return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? not_a_number : rounded);
}

DDPRUN_HOST_DEVICE constexpr float float_from_float16(std::uint16_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  // The exponent is rebiased by a multiplication, which normalizes subnormal numbers too.
  const auto finite = bits_as<std::uint32_t>(bits_as<float>(rest << 13) * 0x1p112f);
  const std::uint32_t special = 0x7f800000 | ((rest & 0x3ff) << 13);  // infinity, NaN
  return bits_as<float>(sign | (rest >= 0x7c00 ? special : finite));
}

DDPRUN_HOST_DEVICE constexpr std::uint16_t float16_from_float(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t rest = bits & 0x7fffffff;
  // Below 2^-14 an addition aligns and rounds. A value that rounds to more than 65504 becomes infinity.
  const std::uint32_t subnormal =
      bits_as<std::uint32_t>(bits_as<float>(rest < 0x38800000 ? rest : 0) + 0.5f) - 0x3f000000;
  const std::uint32_t normal = (rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13;
  const std::uint32_t large = rest > 0x7f800000 ? 0x7e00 : 0x7c00;
  const std::uint32_t finite = rest < 0x38800000 ? subnormal : normal;
  return static_cast<std::uint16_t>(sign | (rest >= 0x477ff000 ? large : finite));
}

struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  DDPRUN_HOST_DEVICE constexpr explicit BFloat16(float value) : bits(bfloat16_from_float(value)) {}
  DDPRUN_HOST_DEVICE constexpr explicit operator float() const { return float_from_bfloat16(bits); }
};

struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  DDPRUN_HOST_DEVICE constexpr explicit Float16(float value) : bits(float16_from_float(value)) {}
  DDPRUN_HOST_DEVICE constexpr explicit operator float() const { return float_from_float16(bits); }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::float16;
};

// The type in which arithmetic on elements of type T is done.
template <class T>
struct ComputeTypeOf {
  using Type = T;
};
template <>
struct ComputeTypeOf<BFloat16> {
  using Type = float;
};
template <>
struct ComputeTypeOf<Float16> {
  using Type = float;
};
template <class T>
using ComputeType = typename ComputeTypeOf<T>::Type;

}  // namespace ddprun

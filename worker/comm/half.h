#pragma once

#include <bit>
#include <cstdint>

// The 16-bit float formats as bits, and their conversion from and to float32, rounding to nearest even.
namespace ddprun::comm {

inline float float_from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t bfloat16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float float_from_float16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((rest & 0x3ff) << 13));  // infinity, NaN
  // Exponents are rebiased by a multiplication, which normalises subnormal numbers too.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

inline std::uint16_t float16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00;   // NaN
  if (rest >= 0x477ff000) return sign | 0x7c00;  // rounds beyond 65504: infinity
  if (rest < 0x38800000) {                       // below 2^-14: subnormal; an addition aligns and rounds
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000);
  }
  return sign | static_cast<std::uint16_t>((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13);
}

}  // namespace ddprun::comm

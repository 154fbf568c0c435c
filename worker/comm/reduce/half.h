#pragma once

#include <cstdint>

// Conversion of 16-bit floats, as bits, from and to float32, rounding to nearest even. Static, since each file is
// compiled for its own kind of processor: the linker must not choose one file's copy for the whole program.
namespace ddprun::comm {

template <class To, class From>
static inline To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

static inline float float_from_bfloat16(std::uint16_t bits) {
  return bits_as<float>(std::uint32_t{bits} << 16);
}

static inline std::uint16_t bfloat16_from_float(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline float float_from_float16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00) return bits_as<float>(sign | 0x7f800000 | ((rest & 0x3ff) << 13));  // infinity, NaN
  // Exponents are rebiased by a multiplication, which normalises subnormal numbers too.
  const float magnitude = bits_as<float>(rest << 13) * 0x1p112f;
  return bits_as<float>(sign | bits_as<std::uint32_t>(magnitude));
}

static inline std::uint16_t float16_from_float(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00;   // NaN
  if (rest >= 0x477ff000) return sign | 0x7c00;  // rounds beyond 65504: infinity
  if (rest < 0x38800000) {                       // below 2^-14: subnormal; an addition aligns and rounds
    const float shifted = bits_as<float>(rest) + 0.5f;
    return sign | static_cast<std::uint16_t>(bits_as<std::uint32_t>(shifted) - 0x3f000000);
  }
  return sign | static_cast<std::uint16_t>((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13);
}

}  // namespace ddprun::comm

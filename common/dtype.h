#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddprun {

// Element types of tensors and of spans on the wire.
enum class DType : std::uint8_t { float32, float64, float16, bfloat16, int8, uint8, int32, int64 };

// A shift instead of a switch: small collectives call it several times.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::uint64_t sizes = 0x84'11'22'84;  // four bits each, the first type's lowest
  return sizes >> (4 * static_cast<unsigned>(dtype) & 63) & 0xf;
}
static_assert(size_of(DType::float32) == 4 && size_of(DType::float64) == 8 && size_of(DType::float16) == 2 &&
              size_of(DType::bfloat16) == 2 && size_of(DType::int8) == 1 && size_of(DType::uint8) == 1 &&
              size_of(DType::int32) == 4 && size_of(DType::int64) == 8);

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 || dtype == DType::bfloat16;
}

// The DType of a C++ element type; those of the 16-bit floats are in float16.h.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::int8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace ddprun

#include "ddprun/worker/reducer/hooks/integer_code.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ddprun/common/float16.h"

namespace ddprun {
namespace {

// As bits: a NaN is greater than infinity, which is greater than all numbers.
float magnitude_of(const float* values, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, bits_as<std::uint32_t>(values[i]) & 0x7fffffff);
  return bits_as<float>(most);
}

// 0 for a piece of zeros, NaN for one with a value that is not finite.
float scale_of(const float* values, std::size_t count, float largest) {
  const float magnitude = magnitude_of(values, count);
  if (!(magnitude <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  return magnitude / largest;
}

// Adding 1.5 x 2^23 rounds to an integer, to nearest even, in a way that vectorises.
std::int8_t rounded(float value) {
  constexpr float shift = 12582912.0f;
  return static_cast<std::int8_t>(static_cast<std::int32_t>(value + shift - shift));
}

// How integers of so many bits lie in memory.
struct EightBits {
  static constexpr float largest = 127;
  static constexpr std::byte zeros{0};
  static std::size_t bytes(std::size_t count) { return count; }
  static void put(const float* values, std::size_t count, float scale, std::byte* code) {
    auto* integers = reinterpret_cast<std::int8_t*>(code);
    for (std::size_t i = 0; i < count; ++i) integers[i] = rounded(std::clamp(values[i] / scale, -largest, largest));
  }
  // visit(i, integer) for each.
  template <class Visit>
  static void for_each(const std::byte* code, std::size_t count, Visit visit) {
    const auto* integers = reinterpret_cast<const std::int8_t*>(code);
    for (std::size_t i = 0; i < count; ++i) visit(i, static_cast<float>(integers[i]));
  }
};

// Two in a byte, the first in its lower half, each above its value by 8.
struct FourBits {
  static constexpr float largest = 7;
  static constexpr int offset = 8;
  static constexpr std::byte zeros{0x88};
  static std::size_t bytes(std::size_t count) { return (count + 1) / 2; }
  static void put(const float* values, std::size_t count, float scale, std::byte* code) {
    const auto half = [scale](float value) {
      return static_cast<unsigned>(rounded(std::clamp(value / scale, -largest, largest)) + offset);
    };
    const std::size_t pairs = count / 2;
    for (std::size_t i = 0; i < pairs; ++i)
      code[i] = static_cast<std::byte>(half(values[2 * i]) | half(values[2 * i + 1]) << 4);
    if (count % 2 != 0) code[pairs] = static_cast<std::byte>(half(values[count - 1]) | unsigned{offset} << 4);
  }
  template <class Visit>
  static void for_each(const std::byte* code, std::size_t count, Visit visit) {
    const auto low = [](std::byte both) {
      return static_cast<float>(std::to_integer<int>(both & std::byte{15}) - offset);
    };
    const auto high = [](std::byte both) { return static_cast<float>(std::to_integer<int>(both >> 4) - offset); };
    const std::size_t pairs = count / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      visit(2 * i, low(code[i]));
      visit(2 * i + 1, high(code[i]));
    }
    if (count % 2 != 0) visit(count - 1, low(code[pairs]));
  }
};

template <class Visit>
decltype(auto) with(IntegerCode::Bits bits, Visit visit) {
  return bits == IntegerCode::Bits::eight ? visit(EightBits()) : visit(FourBits());
}

template <class Format, class Put>
void for_each_value(std::span<const std::size_t> pieces, const std::byte* code, float* values, Put put) {
  const std::byte* integers = code + pieces.size() * sizeof(float);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    float scale = 0;
    std::memcpy(&scale, code + p * sizeof(float), sizeof scale);
    Format::for_each(integers, pieces[p], [=](std::size_t i, float integer) { put(values[i], scale * integer); });
    integers += Format::bytes(pieces[p]);
    values += pieces[p];
  }
}

}  // namespace

std::size_t IntegerCode::bytes(std::span<const std::size_t> pieces) const {
  return with(bits_, [&](auto format) {
    std::size_t sum = pieces.size() * sizeof(float);
    for (const std::size_t piece : pieces) sum += format.bytes(piece);
    return sum;
  });
}

void IntegerCode::encode(std::span<const std::size_t> pieces, const float* values, std::byte* code) const {
  with(bits_, [&](auto format) {
    std::byte* integers = code + pieces.size() * sizeof(float);
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::size_t count = pieces[p], bytes = format.bytes(count);
      const float scale = scale_of(values, count, format.largest);
      std::memcpy(code + p * sizeof(float), &scale, sizeof scale);
      if (scale >= std::numeric_limits<float>::min())
        format.put(values, count, scale, integers);
      else  // nothing to divide by: zeros, denormal numbers, NaN
        std::fill_n(integers, bytes, format.zeros);
      integers += bytes;
      values += count;
    }
  });
}

void IntegerCode::decode(std::span<const std::size_t> pieces, const std::byte* code, float* values) const {
  with(bits_, [&]<class Format>(Format) {
    for_each_value<Format>(pieces, code, values, [](float& value, float decoded) { value = decoded; });
  });
}

void IntegerCode::add(std::span<const std::size_t> pieces, const std::byte* code, float* values) const {
  with(bits_, [&]<class Format>(Format) {
    for_each_value<Format>(pieces, code, values, [](float& value, float decoded) { value += decoded; });
  });
}

}  // namespace ddprun

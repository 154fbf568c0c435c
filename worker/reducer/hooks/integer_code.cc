#include "worker/reducer/hooks/integer_code.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "common/float16.h"

namespace ddprun {
namespace {

// Compares values as bits: a NaN is greater than infinity, which is greater than all numbers.
float magnitude_of(const float* values, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, bits_as<std::uint32_t>(values[i]) & 0x7fffffff);
  return bits_as<float>(most);
}

// Sums in lanes, so that it vectorizes, and shares, so that the sum of finite values is finite.
float mean_magnitude_of(const float* values, std::size_t count) {
  constexpr std::size_t lanes = 16;
  float sums[lanes] = {};
  const float share = 1 / static_cast<float>(count);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += std::abs(values[i + lane]) * share;
  for (; i < count; ++i) sums[0] += std::abs(values[i]) * share;
  return std::accumulate(std::begin(sums), std::end(sums), 0.0f);
}

// Returns 0 for a piece of zeros or of values too small to divide by, NaN for one with a value that is not finite.
float as_scale(float magnitude, float divisor) {
  if (!(magnitude <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  const float scale = magnitude / divisor;
  return scale >= std::numeric_limits<float>::min() ? scale : 0;
}

// Adding 1.5 x 2^23 rounds to an integer, to nearest even, in a way that vectorizes.
std::int8_t rounded(float value) {
  constexpr float shift = 12582912.0f;
  return static_cast<std::int8_t>(static_cast<std::int32_t>(value + shift - shift));
}

// The layout of integers of so many bits in memory.
struct EightBits {
  static constexpr float largest = 127;
  static constexpr std::byte zeros{0};
  static std::size_t bytes(std::size_t count) { return count; }
  static float scale(const float* values, std::size_t count) { return as_scale(magnitude_of(values, count), largest); }
  static void put(const float* values, std::size_t count, float scale, std::byte* code) {
    auto* integers = reinterpret_cast<std::int8_t*>(code);
    for (std::size_t i = 0; i < count; ++i) integers[i] = rounded(std::clamp(values[i] / scale, -largest, largest));
  }
  // Calls visit(i, integer) for each.
  template <class Visit>
  static void for_each(const std::byte* code, std::size_t count, Visit visit) {
    const auto* integers = reinterpret_cast<const std::int8_t*>(code);
    for (std::size_t i = 0; i < count; ++i) visit(i, static_cast<float>(integers[i]));
  }
};

// Two lie in a byte, the first in its lower half, each above its value by 8.
struct FourBits {
  static constexpr float largest = 7;
  static constexpr int offset = 8;
  static constexpr std::byte zeros{0x88};
  static std::size_t bytes(std::size_t count) { return (count + 1) / 2; }
  static float scale(const float* values, std::size_t count) { return as_scale(magnitude_of(values, count), largest); }
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

// Eight signs lie in a byte, the first in its lowest bit: 1 for a value that is not negative.
struct OneBit {
  static constexpr std::byte zeros{0xff};
  static std::size_t bytes(std::size_t count) { return (count + 7) / 8; }
  static float scale(const float* values, std::size_t count) { return as_scale(mean_magnitude_of(values, count), 1); }
  static void put(const float* values, std::size_t count, float, std::byte* code) {
    const std::size_t whole = count / 8;
    for (std::size_t i = 0; i < whole; ++i) code[i] = signs(values + 8 * i, 8);
    if (count % 8 != 0) code[whole] = signs(values + 8 * whole, count % 8);
  }
  template <class Visit>
  static void for_each(const std::byte* code, std::size_t count, Visit visit) {
    const std::size_t whole = count / 8;
    for (std::size_t i = 0; i < whole; ++i)
      for (std::size_t bit = 0; bit < 8; ++bit) visit(8 * i + bit, value(code[i], bit));
    for (std::size_t bit = 0; bit < count % 8; ++bit) visit(8 * whole + bit, value(code[whole], bit));
  }

 private:
  static std::byte signs(const float* values, std::size_t count) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < count; ++i) bits |= static_cast<unsigned>(values[i] >= 0) << i;
    return static_cast<std::byte>(bits);
  }
  static float value(std::byte bits, std::size_t bit) {
    return static_cast<float>((std::to_integer<int>(bits) >> bit & 1) * 2 - 1);
  }
};

template <class Visit>
decltype(auto) with(IntegerCode::Bits bits, Visit visit) {
  switch (bits) {
    case IntegerCode::Bits::one:
      return visit(OneBit());
    case IntegerCode::Bits::four:
      return visit(FourBits());
    case IntegerCode::Bits::eight:
      break;
  }
  return visit(EightBits());
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
      const float scale = format.scale(values, count);
      std::memcpy(code + p * sizeof(float), &scale, sizeof scale);
      if (scale > 0)
        format.put(values, count, scale, integers);
      else  // also for a NaN
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

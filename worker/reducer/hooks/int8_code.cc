#include "ddprun/worker/reducer/hooks/int8_code.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "ddprun/common/float16.h"

namespace ddprun {
namespace {

constexpr float largest = 127;

// As bits: a NaN is greater than infinity, which is greater than all numbers.
float magnitude_of(const float* values, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, bits_as<std::uint32_t>(values[i]) & 0x7fffffff);
  return bits_as<float>(most);
}

// 0 for a piece of zeros, NaN for one with a value that is not finite.
float scale_of(const float* values, std::size_t count) {
  const float magnitude = magnitude_of(values, count);
  if (!(magnitude <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  return magnitude / largest;
}

// Adding 1.5 x 2^23 rounds to an integer, to nearest even, in a way that vectorises.
std::int8_t rounded(float value) {
  constexpr float shift = 12582912.0f;
  return static_cast<std::int8_t>(static_cast<std::int32_t>(value + shift - shift));
}

void encode_piece(const float* values, std::size_t count, float scale, std::byte* code) {
  auto* integers = reinterpret_cast<std::int8_t*>(code);
  if (!(scale >= std::numeric_limits<float>::min())) {  // nothing to divide by: zeros, denormal numbers, NaN
    std::fill_n(integers, count, std::int8_t{0});
    return;
  }
  for (std::size_t i = 0; i < count; ++i) integers[i] = rounded(std::clamp(values[i] / scale, -largest, largest));
}

template <class Put>
void for_each_piece(std::span<const std::size_t> pieces, const std::byte* code, float* values, Put put) {
  const auto* integers = reinterpret_cast<const std::int8_t*>(code) + pieces.size() * sizeof(float);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    float scale = 0;
    std::memcpy(&scale, code + p * sizeof(float), sizeof scale);
    for (std::size_t i = 0; i < pieces[p]; ++i) put(values[i], scale * static_cast<float>(integers[i]));
    integers += pieces[p];
    values += pieces[p];
  }
}

}  // namespace

std::size_t code_bytes(std::span<const std::size_t> pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), pieces.size() * sizeof(float));
}

void encode_int8(std::span<const std::size_t> pieces, const float* values, std::byte* code) {
  auto* integers = code + pieces.size() * sizeof(float);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const float scale = scale_of(values, pieces[p]);
    std::memcpy(code + p * sizeof(float), &scale, sizeof scale);
    encode_piece(values, pieces[p], scale, integers);
    integers += pieces[p];
    values += pieces[p];
  }
}

void decode_int8(std::span<const std::size_t> pieces, const std::byte* code, float* values) {
  for_each_piece(pieces, code, values, [](float& value, float decoded) { value = decoded; });
}

void add_int8(std::span<const std::size_t> pieces, const std::byte* code, float* values) {
  for_each_piece(pieces, code, values, [](float& value, float decoded) { value += decoded; });
}

}  // namespace ddprun

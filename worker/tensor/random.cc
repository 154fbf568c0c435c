#include "ddprun/worker/tensor/random.h"

#include <cmath>
#include <numbers>

#include "ddprun/common/error.h"

namespace ddprun {
namespace {

using Block = std::array<std::uint32_t, 4>;

// Ten rounds of Philox4x32 with the constants of the paper.
Block philox(std::uint64_t index, std::uint64_t stream, std::uint64_t seed) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  Block x{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
          static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * x[0], product1 = multiplier1 * x[2];
    x = {static_cast<std::uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += weyl0;
    key1 += weyl1;
  }
  return x;
}

template <class Draw>
void fill_each(Tensor& tensor, const char* what, Draw draw) {
  if (tensor.dtype() == DType::float32) {
    float* data = tensor.data<float>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = static_cast<float>(draw());
  } else if (tensor.dtype() == DType::float64) {
    double* data = tensor.data<double>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = draw();
  } else {
    throw make_error(Errc::unsupported, "{}: the tensor is {}, not float32 or float64", what, name_of(tensor.dtype()));
  }
}

}  // namespace

std::uint32_t Generator::next_u32() {
  const std::uint64_t index = state_.position / 4;
  if (index != block_index_) {
    block_ = philox(index, state_.stream, state_.seed);
    block_index_ = index;
  }
  return block_[state_.position++ % 4];
}

std::uint64_t Generator::next_u64() {
  const std::uint64_t high = next_u32();
  return high << 32 | next_u32();
}

double Generator::uniform() {
  return static_cast<double>(next_u64() >> 11) * 0x1.0p-53;
}

float Generator::uniform_float() {
  return static_cast<float>(next_u32() >> 8) * 0x1.0p-24F;
}

double Generator::normal() {
  // Box-Muller; 1 - uniform() is never zero.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint64_t Generator::below(std::uint64_t bound) {
  const std::uint64_t limit = -bound % bound;  // 2^64 mod bound: draws below it are over-represented
  for (;;) {
    const std::uint64_t draw = next_u64();
    if (draw >= limit) return draw % bound;
  }
}

void fill_uniform(Tensor& tensor, double low, double high, Generator& generator) {
  fill_each(tensor, "fill_uniform", [&] { return generator.uniform(low, high); });
}

void fill_normal(Tensor& tensor, double mean, double deviation, Generator& generator) {
  fill_each(tensor, "fill_normal", [&] { return mean + deviation * generator.normal(); });
}

}  // namespace ddprun

#include "worker/tensor/random.h"

#include <array>
#include <cmath>
#include <numbers>

#include "common/error.h"
#include "worker/tensor/philox.h"
#include "worker/tensor/shape_only.h"

namespace ddprun {
namespace {

template <class Draw>
void fill_each(Tensor& tensor, const char* what, Draw draw) {
  if (shapes_only()) return;
  if (tensor.device().type != DeviceType::cpu) {  // the same numbers everywhere: they are drawn on the host
    Tensor drawn = Tensor::empty(tensor.shape(), tensor.dtype());
    fill_each(drawn, what, draw);
    return tensor.copy_from(drawn);
  }
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
    block_ = std::to_array(philox(index, state_.stream, state_.seed).numbers);
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
  return ddprun::uniform_float(next_u32());
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

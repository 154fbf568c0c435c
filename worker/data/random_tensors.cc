#include "worker/data/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "worker/data/sample_random.h"

namespace ddprun::data {
namespace {

SampleLayout layout_of(const RandomTensorsOptions& o) {
  SampleLayout layout{.input_shape = o.input_shape};
  if (o.labels) {
    layout.classes = static_cast<int>(o.outputs);
  } else {
    layout.target_shape = {o.outputs};
    layout.target_dtype = DType::float32;
  }
  return layout;
}

}  // namespace

RandomTensors::RandomTensors(const RandomTensorsOptions& options) : options_(options), layout_(layout_of(options)) {
  constexpr std::uint64_t weight_stream = 0x77656967687473;  // "weights": different from every split
  SampleRandom random{options.seed, weight_stream};
  const std::size_t inputs = layout_.input_bytes() / sizeof(float);
  const auto outputs = static_cast<std::size_t>(options.outputs);
  const float scale = 1.0F / std::sqrt(static_cast<float>(inputs));
  for (std::size_t i = 0; i < inputs * outputs; ++i) weights_.push_back(scale * random.normal());
  for (std::size_t i = 0; i < outputs; ++i) biases_.push_back(0.5F * random.normal());
}

void RandomTensors::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  SampleRandom random{options_.seed, static_cast<std::uint64_t>(options_.split), static_cast<std::uint64_t>(index)};
  const std::span<float> x{reinterpret_cast<float*>(input.data()), input.size() / sizeof(float)};
  std::generate(x.begin(), x.end(), [&] { return random.normal(); });

  std::vector<float> y(biases_);
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += weights_[o * x.size() + i] * x[i];
    y[o] += options_.noise * random.normal();
  }
  if (options_.labels) {
    const std::int64_t label = std::max_element(y.begin(), y.end()) - y.begin();
    std::memcpy(target.data(), &label, sizeof(label));
  } else {
    std::memcpy(target.data(), y.data(), target.size());
  }
}

}  // namespace ddprun::data

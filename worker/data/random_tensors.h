#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/dataset.h"

namespace ddprun::data {

struct RandomTensorsOptions {
  std::int64_t size = 10000;
  std::vector<std::int64_t> input_shape = {16};
  std::int64_t outputs = 1;  // numbers to predict, or classes
  bool labels = false;       // the target is the index of the largest of the outputs, instead of the outputs
  float noise = 0.0F;        // standard deviation of the noise that is added to each output
  std::uint64_t seed = 0;
  Split split = Split::train;
};

// Normally distributed inputs x with a target that a linear model can learn: W x + b + noise, W and b drawn from the
// seed (so that both splits share them), scaled to outputs of about unit size. A sample is a pure function of (seed,
// split, index).
class RandomTensors : public Dataset {
 public:
  explicit RandomTensors(const RandomTensorsOptions& options);

  std::int64_t size() const override { return options_.size; }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;

 private:
  RandomTensorsOptions options_;
  SampleLayout layout_;
  std::vector<float> weights_;  // outputs x inputs
  std::vector<float> biases_;
};

}  // namespace ddprun::data

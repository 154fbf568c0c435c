#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker/data/cifar.h"
#include "worker/data/dataset.h"
#include "worker/data/images.h"
#include "worker/data/kept_samples.h"

namespace ddprun::data {

struct Pattern {
  std::array<std::uint8_t, cifar_levels> levels{};  // red, green and blue plane
  int label = 0;
};

// A disc with a pattern of waves on a plain ground, then noise. The label is the kind of waves (horizontal, vertical,
// diagonal, crossed, rings) times two, plus one when they are short. Place, size, phase, tilt and colours are random,
// so that every class has the same mean: the difference between classes is local, and no linear function of the pixels.
// A mirrored image is of the same class. A pure function of its arguments.
Pattern draw_pattern(std::uint64_t seed, Split split, std::int64_t index);

struct PatternsOptions {
  std::int64_t size = 10000;
  std::uint64_t seed = 0;
  Split split = Split::train;
  std::vector<Normalization> channels{cifar_normalization.begin(), cifar_normalization.end()};
};

// Generated images in the shape of CIFAR-10, for machines without the real ones. A linear model stays under 60 %, a
// small convolutional network passes 90 %. A pattern is drawn when it is first read and kept.
class PatternsDataset : public Dataset {
 public:
  explicit PatternsDataset(PatternsOptions options);

  std::int64_t size() const override { return options_.size; }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;

 private:
  PatternsOptions options_;
  SampleLayout layout_;
  KeptSamples<Pattern> kept_;
};

}  // namespace ddprun::data

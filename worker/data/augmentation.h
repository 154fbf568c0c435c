#pragma once

#include <cstdint>
#include <span>

#include "worker/data/batch.h"
#include "worker/data/dataset.h"

namespace ddprun::data {

struct AugmentationOptions {
  std::int64_t crop_padding = 0;  // pixels of black added at each side, before a random part of the old size is taken
  bool flip = false;              // mirrors every other image, left to right
  std::int64_t cutout = 0;        // pixels: height and width of a square that is set to 0, around a random pixel
};

// Random changes of training images, like torchvision's RandomCrop(size, padding) and RandomHorizontalFlip, and cutout
// (DeVries and Taylor, 2017), where a part of the square beyond the border is left out. The change of a
// sample is a function only of (seed, epoch, index of the sample): the same at any batch size, number of ranks and
// number of loader threads. Thread-safe.
class Augmentation {
 public:
  // layout: that of float32 images, (channels, height, width). Throws Errc::usage for samples that are no images.
  Augmentation(const AugmentationOptions& options, const SampleLayout& layout);

  // Changes the images of a batch in place.
  void apply(Batch& batch, std::uint64_t seed) const;

 private:
  void apply(std::span<float> image, std::uint64_t seed, std::int64_t epoch, std::int64_t sample) const;

  AugmentationOptions options_;
  SampleLayout layout_;
};

}  // namespace ddprun::data

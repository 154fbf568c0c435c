#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ddprun/worker/data/dataset.h"

namespace ddprun::data {

// How a grey level 0 .. 255 becomes a number: (level / 255 - mean) / standard_deviation.
struct Normalisation {
  float mean = 0.0F;
  float standard_deviation = 1.0F;
};
// Of the MNIST training set, as most published results use it.
inline constexpr Normalisation mnist_normalisation{0.1307F, 0.3081F};

void normalise(std::span<const std::uint8_t> levels, Normalisation normalisation, std::span<float> out);

// Grey images with labels, all in memory. Immutable.
class ImageDataset : public Dataset {
 public:
  // REQUIRES: levels holds labels.size() images of height x width.
  ImageDataset(std::int64_t height, std::int64_t width, std::vector<std::uint8_t> levels,
               std::vector<std::uint8_t> labels, int classes, Normalisation normalisation);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;

 private:
  SampleLayout layout_;
  std::vector<std::uint8_t> levels_;
  std::vector<std::uint8_t> labels_;
  Normalisation normalisation_;
};

// The two files of a split in a folder laid out as MNIST's is: train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or with .gz.
struct MnistFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};
// None when one of the two is missing.
std::optional<MnistFiles> find_mnist(const std::filesystem::path& folder, Split split);

// Throws Errc::usage naming a file that is missing or cannot be opened, Errc::io a malformed one: also images and
// labels that differ in number, a label above 9.
std::unique_ptr<Dataset> load_mnist(const std::filesystem::path& folder, Split split, Normalisation normalisation);

}  // namespace ddprun::data

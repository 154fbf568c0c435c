#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.h"

namespace ddprun::data {

// The conversion of a level 0 .. 255 to a number: (level / 255 - mean) / standard_deviation.
struct Normalization {
  float mean = 0.0F;
  float standard_deviation = 1.0F;

  float operator()(std::uint8_t level) const {
    return (static_cast<float>(level) / 255.0F - mean) / standard_deviation;
  }
};
// The normalization of the MNIST training set, as most published results use it.
inline constexpr Normalization mnist_normalization{0.1307F, 0.3081F};

// levels: the planes of an image, one for each normalization, back to back.
void normalize(std::span<const std::uint8_t> levels, std::span<const Normalization> channels, std::span<float> out);

// The layout of images with one normalization for each channel.
SampleLayout image_layout(std::int64_t height, std::int64_t width, int classes,
                          std::span<const Normalization> channels);

// A number of images of an ImageDataset, and the names of the sources of their levels and of their labels.
struct ImagePart {
  std::string levels;
  std::string labels;
  std::size_t images = 0;
};

// Images with labels, all in memory. Immutable.
class ImageDataset : public Dataset {
 public:
  // REQUIRES: levels holds labels.size() images of one plane of height x width for each normalization; the images of
  // all parts, in their order.
  ImageDataset(std::int64_t height, std::int64_t width, std::vector<std::uint8_t> levels,
               std::vector<std::uint8_t> labels, int classes, std::vector<Normalization> channels,
               std::vector<ImagePart> parts);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;
  std::vector<Source> sources() const override;

 private:
  SampleLayout layout_;
  std::vector<std::uint8_t> levels_;
  std::vector<std::uint8_t> labels_;
  std::vector<Normalization> channels_;
  std::vector<ImagePart> parts_;
};

// The two files of a split in a folder laid out as MNIST's is: train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or with .gz.
struct MnistFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};
// Returns none if one of the two is missing.
std::optional<MnistFiles> find_mnist(const std::filesystem::path& folder, Split split);

// Throws Errc::usage naming a file that is missing or cannot be opened, Errc::io naming a malformed one: also images
// and labels that differ in number, a label above 9.
std::unique_ptr<Dataset> load_mnist(const std::filesystem::path& folder, Split split, Normalization normalization);

// Loads an IDX file of images without labels, in the form of load_mnist(): labels are 0. Throws what read_idx() throws.
std::unique_ptr<Dataset> load_idx_images(const std::filesystem::path& path, Normalization normalization);

}  // namespace ddprun::data

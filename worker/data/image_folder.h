#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/images.h"

namespace ddprun::data {

// The normalization of ImageNet's training set, as torchvision's models expect it.
inline constexpr std::array<Normalization, 3> imagenet_normalization{
    {{0.485F, 0.229F}, {0.456F, 0.224F}, {0.406F, 0.225F}}};

struct ImageFile {
  std::filesystem::path path;
  std::int64_t label;
};

// PNG and JPEG files, of which each sample is the square in the middle, resized (resize_and_crop()). A file is read and
// decoded each time its sample is asked for, so the set may be larger than memory. Errors: read() throws Errc::io
// naming the file.
class ImageFiles : public Dataset {
 public:
  ImageFiles(std::vector<ImageFile> files, std::int64_t extent, int classes, std::span<const Normalization> channels);

  std::int64_t size() const override { return std::ssize(files_); }
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;
  // One source for each folder of files, which is one class.
  std::vector<Source> sources() const override;

 private:
  const std::vector<ImageFile> files_;
  const std::int64_t extent_;
  const std::vector<Normalization> channels_;
  const SampleLayout layout_;
};

// Returns the names of the folders in <folder>/train, in their order: the classes.
std::vector<std::string> image_folder_classes(const std::filesystem::path& folder);

// Equivalent to torchvision's ImageFolder on <folder>/train or <folder>/val: a folder for each class, all files .png,
// .jpg and .jpeg in it and below, in the order of their paths. Throws Errc::usage naming a folder that is missing, that
// is no class of train or that holds no such file, and if the build has no library for these files.
std::unique_ptr<Dataset> load_image_folder(const std::filesystem::path& folder, Split split, std::int64_t extent,
                                           std::span<const Normalization> channels);

}  // namespace ddprun::data

#include "worker/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/mapped_file.h"
#include "worker/data/picture.h"

namespace ddprun::data {
namespace {

namespace fs = std::filesystem;

bool has_picture_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

std::vector<fs::path> pictures_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto each = fs::recursive_directory_iterator(folder, error); !error && each != fs::end(each);
       each.increment(error))
    if (each->is_regular_file() && has_picture_name(each->path())) files.push_back(each->path());
  if (error) throw make_error(Errc::usage, "cannot read the folder {}: {}", folder.string(), error.message());
  if (files.empty()) throw make_error(Errc::usage, "{} holds no file .png, .jpg or .jpeg", folder.string());
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  if (error) throw make_error(Errc::usage, "cannot read the folder {}: {}", folder.string(), error.message());
  if (names.empty()) throw make_error(Errc::usage, "{} holds no folder: expected one for each class", folder.string());
  std::ranges::sort(names);
  return names;
}

}  // namespace

ImageFiles::ImageFiles(std::vector<ImageFile> files, std::int64_t extent, int classes,
                       std::span<const Normalization> channels)
    : files_(std::move(files)),
      extent_(extent),
      channels_(channels.begin(), channels.end()),
      layout_(image_layout(extent, extent, classes, channels)) {}

void ImageFiles::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  const auto& [path, label] = files_[static_cast<std::size_t>(index)];
  const MappedFile file(path);
  const Picture picture = resize_and_crop(decode_picture(file.bytes(), path.string()), extent_);
  const std::size_t pixels = picture.levels.size() / channels_.size();
  auto* values = reinterpret_cast<float*>(input.data());
  for (std::size_t channel = 0; channel < channels_.size(); ++channel)
    for (std::size_t pixel = 0; pixel < pixels; ++pixel)
      *values++ = channels_[channel](picture.levels[pixel * channels_.size() + channel]);
  std::memcpy(target.data(), &label, sizeof(label));
}

std::vector<Source> ImageFiles::sources() const {
  std::vector<Source> sources;
  fs::path folder;
  for (const auto& [path, label] : files_) {
    if (sources.empty() || path.parent_path() != folder) {
      folder = path.parent_path();
      sources.push_back({.name = (folder.parent_path().filename() / folder.filename()).string()});
    }
    sources.back().files.push_back(path);
  }
  return sources;
}

std::vector<std::string> image_folder_classes(const fs::path& folder) {
  return folders_in(folder / "train");
}

std::unique_ptr<Dataset> load_image_folder(const fs::path& folder, Split split, std::int64_t extent,
                                           std::span<const Normalization> channels) {
  if (!reads_pictures())
    throw make_error(Errc::usage, "{}: this build reads no pictures: libpng and libjpeg were not there",
                     folder.string());
  const auto classes = image_folder_classes(folder);
  const fs::path part = folder / (split == Split::train ? "train" : "val");
  std::vector<ImageFile> files;
  for (const auto& name : folders_in(part)) {
    const auto found = std::ranges::find(classes, name);
    if (found == classes.end())
      throw make_error(Errc::usage, "{} is no class: there is no {}", (part / name).string(),
                       (folder / "train" / name).string());
    for (auto& path : pictures_below(part / name)) files.push_back({std::move(path), found - classes.begin()});
  }
  return std::make_unique<ImageFiles>(std::move(files), extent, static_cast<int>(classes.size()), channels);
}

}  // namespace ddprun::data

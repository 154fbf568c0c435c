#include "worker/data/images.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/error.h"
#include "worker/data/idx.h"

namespace ddprun::data {
namespace {

constexpr int mnist_classes = 10;
constexpr std::int64_t label_header_bytes = 8;

std::optional<std::filesystem::path> plain_or_compressed(const std::filesystem::path& folder, const std::string& name) {
  for (const auto& candidate : {folder / name, folder / (name + ".gz")}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate;
  }
  return std::nullopt;
}

std::string prefix_of(Split split) {
  return split == Split::train ? "train" : "t10k";
}

ImagePart mnist_files(Split split, std::size_t images) {
  return {.levels = prefix_of(split) + "-images-idx3-ubyte",
          .labels = prefix_of(split) + "-labels-idx1-ubyte",
          .images = images};
}

void check_pair(const MnistFiles& files, const IdxArray& images, const IdxArray& labels) {
  if (images.shape[0] != labels.shape[0])
    throw make_error(Errc::io, "{} holds {} images, {} holds {} labels: they do not belong together",
                     files.images.string(), images.shape[0], files.labels.string(), labels.shape[0]);
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    if (labels.values[i] < mnist_classes) continue;
    throw make_error(Errc::io, "{}: offset {}: expected a label from 0 to {}, found {}", files.labels.string(),
                     label_header_bytes + static_cast<std::int64_t>(i), mnist_classes - 1, labels.values[i]);
  }
}

}  // namespace

void normalize(std::span<const std::uint8_t> levels, std::span<const Normalization> channels, std::span<float> out) {
  const std::size_t plane = levels.size() / channels.size();
  for (std::size_t c = 0; c < channels.size(); ++c)
    std::ranges::transform(levels.subspan(c * plane, plane), out.begin() + static_cast<std::ptrdiff_t>(c * plane),
                           channels[c]);
}

SampleLayout image_layout(std::int64_t height, std::int64_t width, int classes,
                          std::span<const Normalization> channels) {
  SampleLayout layout{.input_shape = {std::ssize(channels), height, width}, .classes = classes};
  for (const auto& channel : channels) layout.black.push_back(channel(0));
  return layout;
}

ImageDataset::ImageDataset(std::int64_t height, std::int64_t width, std::vector<std::uint8_t> levels,
                           std::vector<std::uint8_t> labels, int classes, std::vector<Normalization> channels,
                           std::vector<ImagePart> parts)
    : layout_(image_layout(height, width, classes, channels)),
      levels_(std::move(levels)),
      labels_(std::move(labels)),
      channels_(std::move(channels)),
      parts_(std::move(parts)) {}

std::vector<Source> ImageDataset::sources() const {
  std::vector<Source> sources;
  auto levels = std::as_bytes(std::span(levels_)), labels = std::as_bytes(std::span(labels_));
  const std::size_t image_bytes = labels_.empty() ? 0 : levels_.size() / labels_.size();
  for (const auto& part : parts_) {
    sources.push_back({.name = part.levels, .bytes = levels.first(part.images * image_bytes)});
    sources.push_back({.name = part.labels, .bytes = labels.first(part.images), .is_labels = true});
    levels = levels.subspan(part.images * image_bytes);
    labels = labels.subspan(part.images);
  }
  return sources;
}

void ImageDataset::read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const {
  const auto i = static_cast<std::size_t>(index);
  const std::size_t pixels = input.size() / sizeof(float);
  normalize(std::span(levels_).subspan(i * pixels, pixels), channels_,
            {reinterpret_cast<float*>(input.data()), pixels});
  const std::int64_t label = labels_[i];
  std::memcpy(target.data(), &label, sizeof(label));
}

std::optional<MnistFiles> find_mnist(const std::filesystem::path& folder, Split split) {
  const auto names = mnist_files(split, 0);
  const auto images = plain_or_compressed(folder, names.levels);
  const auto labels = plain_or_compressed(folder, names.labels);
  if (!images || !labels) return std::nullopt;
  return MnistFiles{*images, *labels};
}

std::unique_ptr<Dataset> load_mnist(const std::filesystem::path& folder, Split split, Normalization normalization) {
  const auto files = find_mnist(folder, split);
  if (!files)
    throw make_error(
        Errc::usage,
        "{} does not hold {}-images-idx3-ubyte and {}-labels-idx1-ubyte (plain or .gz); scripts/get-data mnist "
        "fetches them",
        folder.string(), prefix_of(split), prefix_of(split));
  auto images = read_idx(files->images, {.dimensions = 3});
  auto labels = read_idx(files->labels, {.dimensions = 1});
  check_pair(*files, images, labels);
  const auto part = mnist_files(split, labels.values.size());
  return std::make_unique<ImageDataset>(images.shape[1], images.shape[2], std::move(images.values),
                                        std::move(labels.values), mnist_classes, std::vector{normalization},
                                        std::vector{part});
}

std::unique_ptr<Dataset> load_idx_images(const std::filesystem::path& path, Normalization normalization) {
  auto images = read_idx(path, {.dimensions = 3});
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(images.shape[0]));
  const ImagePart part{.levels = path.filename().string(), .labels = "no labels", .images = labels.size()};
  return std::make_unique<ImageDataset>(images.shape[1], images.shape[2], std::move(images.values), std::move(labels),
                                        mnist_classes, std::vector{normalization}, std::vector{part});
}

}  // namespace ddprun::data

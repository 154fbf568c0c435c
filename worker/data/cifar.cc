#include "worker/data/cifar.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/mapped_file.h"

namespace ddprun::data {
namespace {

constexpr std::size_t record_bytes = 1 + cifar_levels;
constexpr int train_files = 5;

bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::unique_ptr<Dataset> dataset_of(std::span<const std::filesystem::path> files,
                                    std::span<const Normalization> channels) {
  CifarRecords records;
  std::vector<ImagePart> parts;
  for (const auto& path : files) {
    const auto before = records.labels.size();
    append_cifar_records(MappedFile(path).bytes(), path.string(), records);
    const auto name = path.filename().string();
    parts.push_back({.levels = "the images of " + name,
                     .labels = "the labels of " + name,
                     .images = records.labels.size() - before});
  }
  return std::make_unique<ImageDataset>(cifar_extent, cifar_extent, std::move(records.levels),
                                        std::move(records.labels), cifar_classes,
                                        std::vector<Normalization>(channels.begin(), channels.end()), std::move(parts));
}

}  // namespace

void append_cifar_records(std::span<const std::byte> bytes, const std::string& name, CifarRecords& records) {
  if (bytes.empty() || bytes.size() % record_bytes != 0)
    throw make_error(Errc::io, "{}: {} bytes are no whole number of records of {} bytes", name, bytes.size(),
                     record_bytes);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::size_t at = 0; at < bytes.size(); at += record_bytes) {
    const std::uint8_t* record = begin + at;
    if (record[0] >= cifar_classes)
      throw make_error(Errc::io, "{}: offset {}: expected a label from 0 to {}, found {}", name, at, cifar_classes - 1,
                       record[0]);
    records.labels.push_back(record[0]);
    records.levels.insert(records.levels.end(), record + 1, record + record_bytes);
  }
}

std::vector<std::filesystem::path> cifar10_files(const std::filesystem::path& folder, Split split) {
  if (split == Split::test) return {folder / "test_batch.bin"};
  std::vector<std::filesystem::path> files;
  for (int i = 1; i <= train_files; ++i) files.push_back(folder / fmt::format("data_batch_{}.bin", i));
  return files;
}

bool holds_cifar10(const std::filesystem::path& folder) {
  return std::ranges::any_of(cifar10_files(folder, Split::train), is_file) ||
         std::ranges::any_of(cifar10_files(folder, Split::test), is_file);
}

std::unique_ptr<Dataset> load_cifar10(const std::filesystem::path& folder, Split split,
                                      std::span<const Normalization> channels) {
  const auto files = cifar10_files(folder, split);
  for (const auto& path : files)
    if (!is_file(path))
      throw make_error(Errc::usage, "{} is missing; scripts/get-data cifar10 fetches it", path.string());
  return dataset_of(files, channels);
}

std::unique_ptr<Dataset> load_cifar_file(const std::filesystem::path& path, std::span<const Normalization> channels) {
  return dataset_of(std::span(&path, 1), channels);
}

}  // namespace ddprun::data

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/data/images.h"

// CIFAR-10, binary version (https://www.cs.toronto.edu/~kriz/cifar.html): files of records of 3073 bytes, a label 0 ..
// 9 and the red, the green and the blue plane of an image of 32 x 32 levels.
namespace ddprun::data {

inline constexpr int cifar_extent = 32;  // pixels, both ways
inline constexpr int cifar_classes = 10;
inline constexpr std::size_t cifar_levels = std::size_t{3} * cifar_extent * cifar_extent;

// The normalization of the training set's channels, as most published results use it.
inline constexpr std::array<Normalization, 3> cifar_normalization{
    {{0.4914F, 0.2470F}, {0.4822F, 0.2435F}, {0.4465F, 0.2616F}}};

struct CifarRecords {
  std::vector<std::uint8_t> levels;  // cifar_levels for each label
  std::vector<std::uint8_t> labels;
};

// Appends the records of a file. name: the file's, for errors. Throws Errc::io naming it for a size that is not a
// positive number of whole records, and for a label above 9 with its offset.
void append_cifar_records(std::span<const std::byte> bytes, const std::string& name, CifarRecords& records);

// Returns the paths of data_batch_1.bin .. data_batch_5.bin, or of test_batch.bin.
std::vector<std::filesystem::path> cifar10_files(const std::filesystem::path& folder, Split split);

// Returns whether the folder holds any file of either split.
bool holds_cifar10(const std::filesystem::path& folder);

// Throws Errc::usage naming a file that is missing, Errc::io naming one that cannot be read or is malformed.
std::unique_ptr<Dataset> load_cifar10(const std::filesystem::path& folder, Split split,
                                      std::span<const Normalization> channels);

// The images of one file, which may have any name. Throws what load_cifar10() throws.
std::unique_ptr<Dataset> load_cifar_file(const std::filesystem::path& path, std::span<const Normalization> channels);

}  // namespace ddprun::data

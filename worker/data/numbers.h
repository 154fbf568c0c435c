#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "worker/data/dataset.h"

namespace ddprun::data {

// Inputs given as numbers, without targets: targets are zero. Immutable.
class NumbersDataset : public Dataset {
 public:
  // REQUIRES: float32 inputs; values holds a whole number of them, back to back.
  NumbersDataset(SampleLayout layout, std::vector<float> values);

  std::int64_t size() const override;
  const SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override;

 private:
  SampleLayout layout_;
  std::vector<float> values_;
};

// A text file with a sample a line: as many numbers as an input has, separated by commas. Throws Errc::usage for a file
// that does not exist and for an input that is no float32, Errc::io naming file and line for anything else in it.
std::unique_ptr<Dataset> load_csv(const std::filesystem::path& path, const SampleLayout& layout);

}  // namespace ddprun::data

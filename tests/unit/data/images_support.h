#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.h"

// Helpers for samples of image data sets, and small CIFAR files.
namespace ddprun::testing {

struct ImageSample {
  std::vector<float> input;
  std::int64_t label = -1;
  bool operator==(const ImageSample&) const = default;
};

inline ImageSample read_image(const data::Dataset& set, std::int64_t index) {
  ImageSample sample;
  sample.input.resize(set.layout().input_bytes() / sizeof(float));
  set.read(index, std::as_writable_bytes(std::span(sample.input)), std::as_writable_bytes(std::span(&sample.label, 1)));
  return sample;
}

// Returns a record with planes of one level each.
inline std::string cifar_record(int label, int red, int green, int blue) {
  std::string record(1, static_cast<char>(label));
  for (const int level : {red, green, blue}) record += std::string(32 * 32, static_cast<char>(level));
  return record;
}

// Writes all six files, with one record each: data_batch_i.bin has label i, test_batch.bin 0.
inline void write_cifar10(const std::filesystem::path& folder) {
  for (int i = 1; i <= 5; ++i)
    std::ofstream(folder / ("data_batch_" + std::to_string(i) + ".bin"), std::ios::binary)
        << cifar_record(i, 0, 51 * i, 255);
  std::ofstream(folder / "test_batch.bin", std::ios::binary) << cifar_record(0, 1, 2, 3);
}

}  // namespace ddprun::testing

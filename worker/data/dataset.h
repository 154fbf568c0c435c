#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.h"

namespace ddprun::data {

// The layout of one sample in memory; a batch is samples back to back.
struct SampleLayout {
  std::vector<std::int64_t> input_shape;  // without the batch dimension
  DType input_dtype = DType::float32;
  std::vector<std::int64_t> target_shape;  // empty for a class label
  DType target_dtype = DType::int64;
  int classes = 0;              // labels are 0 .. classes-1; 0 if the target is no label
  std::int64_t vocabulary = 0;  // input and target are tokens 0 .. vocabulary-1; 0 if they are not
  std::vector<float> black;     // for images, the value of a black pixel in each channel; empty means 0

  std::size_t input_bytes() const;
  std::size_t target_bytes() const;
};

// A file, or a part or a folder of files, from which samples are read. Ranks compare them: the same names with the same
// contents give the same samples.
struct Source {
  std::string name;                               // its name without the folder, which may differ from host to host
  std::span<const std::byte> bytes = {};          // in memory or mapped, valid as long as the data set
  std::vector<std::filesystem::path> files = {};  // set instead of bytes: they are read when their samples are
  bool is_labels = false;                         // true if small, and not to be compared by samples of its bytes
};

// A finite, indexed set of samples. A sample is a pure function of its index: reading it twice gives the same bits.
//
// Ownership: what layout() and sources() refer to is the data set's. Threads: any; loaders read from several at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;
  virtual const SampleLayout& layout() const = 0;
  // Writes sample index as layout() says. REQUIRES: 0 <= index < size(), spans of exactly input_bytes() and
  // target_bytes(), aligned for their dtypes.
  virtual void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const = 0;
  // Returns the sources in an order that is the same on every host; none if the samples are computed.
  virtual std::vector<Source> sources() const { return {}; }
};

// The part of a set to learn from, or to be tested on. The values are among the arguments of generated samples.
enum class Split : std::uint8_t { train = 0, test = 1 };

}  // namespace ddprun::data

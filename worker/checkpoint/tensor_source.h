#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/dtype.h"

namespace ddprun::checkpoint {

// A tensor in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;  // empty for a scalar
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

// Whole tensors that can be read by name, whether they lie in one file or in several.
//
// Threads: one at a time. Errors: read() throws Errc::io naming the file and what is wrong with it.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Returns the tensors in the order of their data.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Reads so many bytes from an offset in the tensor. REQUIRES: info is one of tensors(), and offset + out.size() <=
  // info.bytes()
  virtual void read(const TensorInfo& info, std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Returns null if there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
  // Reads a whole tensor. REQUIRES: out.size() == info.bytes()
  void read(const TensorInfo& info, std::span<std::byte> out) const { read(info, 0, out); }
};

}  // namespace ddprun::checkpoint

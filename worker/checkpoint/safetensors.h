#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/dtype.h"
#include "common/unique_fd.h"
#include "worker/checkpoint/file_writer.h"

// The safetensors file format; FORMAT.md describes it with an example in bytes.
namespace ddprun::checkpoint {

struct TensorInfo {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;  // empty for a scalar
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

// A tensor to be written; the memory is the caller's. Contiguous, last dimension fastest.
struct TensorView {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

// Writes tensors in the given order, without holes. Throws Errc::internal if a view's size does not fit its shape or a
// name is given twice or is "__metadata__"; also what FileWriter throws.
void write_safetensors(FileWriter& out, const std::vector<TensorView>& tensors, const Metadata& metadata = {});

// Writes only what comes before the data of such tensors; their data follows, in the same order.
void write_safetensors_header(FileWriter& out, const std::vector<TensorInfo>& tensors, const Metadata& metadata = {});

// The header of a safetensors file, checked as a whole: sizes, dtypes, names, offsets that tile the data without hole
// or overlap.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in order of their data
  Metadata metadata;
};
// json: only the header text. Throws Errc::io naming source, the tensor and what is wrong.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes, const std::string& source);

// An open safetensors file. Reads on demand; not thread-safe.
class SafetensorsFile {
 public:
  // Throws Errc::io naming the file and what is wrong with it.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;
  // REQUIRES: info is one of tensors(), out.size() == info.bytes()
  void read(const TensorInfo& info, std::span<std::byte> out) const;
  // Reads so many bytes from an offset in the tensor. REQUIRES: offset + out.size() <= info.bytes()
  void read(const TensorInfo& info, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace ddprun::checkpoint

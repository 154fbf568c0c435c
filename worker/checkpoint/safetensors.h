#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "worker/checkpoint/file_writer.h"
#include "worker/checkpoint/tensor_source.h"

// The safetensors file format; FORMAT.md describes it with an example in bytes.
namespace ddprun::checkpoint {

// The name of a dtype in the format, such as F32, and the dtype of a name; none if the name is not known.
std::string_view name_in_files(DType dtype);
std::optional<DType> dtype_in_files(std::string_view name);

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
class SafetensorsFile final : public TensorSource {
 public:
  // Throws Errc::io naming the file and what is wrong with it.
  explicit SafetensorsFile(const std::filesystem::path& path);

  using TensorSource::read;
  const std::vector<TensorInfo>& tensors() const override { return header_.tensors; }
  void read(const TensorInfo& info, std::uint64_t offset, std::span<std::byte> out) const override;
  const Metadata& metadata() const { return header_.metadata; }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace ddprun::checkpoint

#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "common/bytes.h"
#include "common/error.h"
#include "common/printable.h"
#include "worker/checkpoint/unique_keys.h"

namespace ddprun::checkpoint {
namespace {

namespace json = boost::json;

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the limit of the format's own reader
constexpr std::uint64_t alignment = 8;
constexpr std::string_view metadata_key = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, 8> dtype_names{{{DType::float32, "F32"},
                                                {DType::float64, "F64"},
                                                {DType::float16, "F16"},
                                                {DType::bfloat16, "BF16"},
                                                {DType::int8, "I8"},
                                                {DType::uint8, "U8"},
                                                {DType::int32, "I32"},
                                                {DType::int64, "I64"}}};

// Returns the bytes of shape x dtype, or none on overflow or a negative extent.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, DType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (const auto extent : shape) {
    if (extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

void check_views(const std::vector<TensorView>& tensors) {
  std::set<std::string_view> names{metadata_key};
  for (const auto& t : tensors) {
    if (!names.insert(t.name).second)
      throw make_error(Errc::internal, "safetensors: tensor name '{}' is taken", t.name);
    if (bytes_of(t.shape, t.dtype) != t.bytes.size())
      throw make_error(Errc::internal, "safetensors: tensor '{}' has {} bytes, which does not fit its shape", t.name,
                       t.bytes.size());
  }
}

std::vector<TensorInfo> infos_of(const std::vector<TensorView>& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& t : tensors)
    infos.push_back({.name = t.name, .dtype = t.dtype, .shape = t.shape, .begin = 0, .end = t.bytes.size()});
  return infos;
}

std::string header_of(const std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  json::object header;
  if (!metadata.empty()) {
    json::object& all = header[metadata_key].emplace_object();
    for (const auto& [key, value] : metadata) all[key] = value;
  }
  std::uint64_t offset = 0;
  for (const auto& t : tensors) {
    json::object& entry = header[t.name].emplace_object();
    entry["dtype"] = name_in_files(t.dtype);
    entry["shape"] = json::array(t.shape.begin(), t.shape.end());
    entry["data_offsets"] = {offset, offset + t.bytes()};
    offset += t.bytes();
  }
  auto text = json::serialize(header);
  text.append((alignment - text.size() % alignment) % alignment, ' ');
  return text;
}

// Reads one entry of a header; every complaint names the file and the tensor.
class EntryParser {
 public:
  EntryParser(const std::string& source, std::string_view name) : source_(source), name_(name) {}

  TensorInfo parse(const json::value& value) const {
    const auto* entry = value.if_object();
    if (!entry || entry->size() != 3) fail("its entry is not an object of dtype, shape and data_offsets");
    TensorInfo info;
    info.name = name_;
    info.dtype = dtype(member(*entry, "dtype"));
    for (const auto extent : numbers(member(*entry, "shape"))) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) fail("its shape is too large");
      info.shape.push_back(static_cast<std::int64_t>(extent));
    }
    const auto offsets = numbers(member(*entry, "data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1]) fail("its data_offsets are not [begin, end]");
    info.begin = offsets[0];
    info.end = offsets[1];
    const auto expected = bytes_of(info.shape, info.dtype);
    if (!expected) fail("its shape is too large");
    if (*expected != info.bytes())
      fail(fmt::format("its shape takes {} bytes, its data_offsets span {}", *expected, info.bytes()));
    return info;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw make_error(Errc::io, "{}: tensor '{}': {}", source_, printable(name_), what);
  }
  const json::value& member(const json::object& entry, std::string_view key) const {
    const auto* value = entry.if_contains(key);
    if (!value) fail(fmt::format("it has no {}", key));
    return *value;
  }
  DType dtype(const json::value& value) const {
    const auto* text = value.if_string();
    if (!text) fail("its dtype is not a text");
    if (const auto known = dtype_in_files(*text)) return *known;
    fail(fmt::format("dtype {} is not supported", printable(std::string_view(*text))));
  }
  std::vector<std::uint64_t> numbers(const json::value& value) const {
    const auto* array = value.if_array();
    if (!array) fail("its shape or data_offsets is not an array");
    std::vector<std::uint64_t> all;
    for (const auto& element : *array) {
      json::error_code status;
      const auto number = element.to_number<std::uint64_t>(status);
      if (status || element.is_double()) fail("its shape or data_offsets has an element that is not a whole number");
      all.push_back(number);
    }
    return all;
  }

  const std::string& source_;
  std::string name_;
};

Metadata parse_metadata(const json::value& value, const std::string& source) {
  Metadata metadata;
  const auto* object = value.if_object();
  if (!object) throw make_error(Errc::io, "{}: {} is not an object of texts", source, metadata_key);
  for (const auto& member : *object) {
    const auto* text = member.value().if_string();
    if (!text) throw make_error(Errc::io, "{}: {} is not an object of texts", source, metadata_key);
    metadata.emplace(member.key(), std::string_view(*text));
  }
  return metadata;
}

void check_tiling(const std::vector<TensorInfo>& tensors, std::uint64_t data_bytes, const std::string& source) {
  std::uint64_t expected = 0;
  for (const auto& t : tensors) {
    if (t.begin != expected)
      throw make_error(Errc::io, "{}: tensor '{}' begins at data offset {}, expected {} (no hole, no overlap)", source,
                       printable(t.name), t.begin, expected);
    expected = t.end;
  }
  if (expected != data_bytes)
    throw make_error(Errc::io, "{}: the header describes {} bytes of data, the file has {}", source, expected,
                     data_bytes);
}

void read_exactly(int fd, std::span<std::byte> out, std::uint64_t offset, const std::filesystem::path& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw make_error(Errc::io, "cannot read {}: {}", path.string(), errno_text(errno));
    if (n == 0) throw make_error(Errc::io, "{}: the file ends at {} while it is read", path.string(), offset);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

std::uint64_t size_of_file(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw make_error(Errc::io, "cannot read {}: {}", path.string(), errno_text(errno));
  return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

std::string_view name_in_files(DType dtype) {
  return std::ranges::find(dtype_names, dtype, &DTypeName::dtype)->name;
}

std::optional<DType> dtype_in_files(std::string_view name) {
  const auto found = std::ranges::find(dtype_names, name, &DTypeName::name);
  return found == dtype_names.end() ? std::nullopt : std::optional(found->dtype);
}

void write_safetensors_header(FileWriter& out, const std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  const auto header = header_of(tensors, metadata);
  std::string length;
  put_le(length, static_cast<std::uint64_t>(header.size()));
  out.write(length);
  out.write(header);
}

void write_safetensors(FileWriter& out, const std::vector<TensorView>& tensors, const Metadata& metadata) {
  check_views(tensors);
  write_safetensors_header(out, infos_of(tensors), metadata);
  for (const auto& t : tensors) out.write(t.bytes);
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes, const std::string& source) {
  json::error_code status;
  const auto value = json::parse({text.data(), text.size()}, status);
  if (status) throw make_error(Errc::io, "{}: the header is not valid JSON: {}", source, status.message());
  const auto* object = value.if_object();
  if (!object || text.front() != '{') throw make_error(Errc::io, "{}: the header is not a JSON object", source);
  check_unique_keys(text, source);
  SafetensorsHeader header;
  for (const auto& member : *object) {
    const std::string_view name(member.key());
    if (name == metadata_key) {
      header.metadata = parse_metadata(member.value(), source);
    } else {
      header.tensors.push_back(EntryParser(source, name).parse(member.value()));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  check_tiling(header.tensors, data_bytes, source);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!fd_) throw make_error(Errc::io, "cannot open {}: {}", path.string(), errno_text(errno));
  const auto file_bytes = size_of_file(fd_.get(), path);
  if (file_bytes < length_bytes)
    throw make_error(Errc::io, "{}: {} bytes are too few for a safetensors file", path.string(), file_bytes);
  std::string length(length_bytes, '\0');
  read_exactly(fd_.get(), std::as_writable_bytes(std::span(length)), 0, path);
  const auto header_bytes = get_le<std::uint64_t>(length);
  if (header_bytes > max_header_bytes || header_bytes > file_bytes - length_bytes)
    throw make_error(Errc::io, "{}: the header claims {} bytes, the file has {} and {} are allowed", path.string(),
                     header_bytes, file_bytes - length_bytes, max_header_bytes);
  std::string header(header_bytes, '\0');
  read_exactly(fd_.get(), std::as_writable_bytes(std::span(header)), length_bytes, path);
  data_begin_ = length_bytes + header_bytes;
  header_ = parse_safetensors_header(header, file_bytes - data_begin_, path.string());
}

void SafetensorsFile::read(const TensorInfo& info, std::uint64_t offset, std::span<std::byte> out) const {
  read_exactly(fd_.get(), out, data_begin_ + info.begin + offset, path_);
}

}  // namespace ddprun::checkpoint

#include "worker/trainer/session/source_digest.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "common/error.h"
#include "common/mapped_file.h"
#include "worker/digest/crc32c.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t sampled_bytes = std::size_t{1} << 20;

std::string digest_text(std::uint64_t bytes, std::uint32_t crc) {
  return fmt::format("{} bytes, CRC-32C {:08x}", bytes, crc);
}

// Returns the beginning of block i of so many: the first at the beginning, the last at the end.
std::uint64_t block_offset(std::uint64_t total, std::size_t block, std::size_t blocks, std::size_t i) {
  const std::uint64_t room = total - block;
  return room / (blocks - 1) * i + room % (blocks - 1) * i / (blocks - 1);
}

// Digests files one after the other as parts of one sequence of bytes.
class FileSequence {
 public:
  explicit FileSequence(std::uint64_t total) : total_(total) {}

  // Extends crc by the compared part of this file's contents.
  std::uint32_t add(std::uint32_t crc, const std::filesystem::path& path, std::uint64_t size) {
    const std::uint64_t begin = position_, end = position_ + size;
    position_ = end;
    if (total_ <= whole_digest_bytes) return size == 0 ? crc : crc32c(MappedFile(path).bytes(), crc);
    for (; next_ < blocks && block_offset(total_, block, blocks, next_) < end; ++next_) {
      const MappedFile file(path);
      const auto at = static_cast<std::size_t>(block_offset(total_, block, blocks, next_) - begin);
      if (at < file.bytes().size())  // false if the file was cut short after its size was read
        crc = crc32c(file.bytes().subspan(at, std::min(block, file.bytes().size() - at)), crc);
    }
    return crc;
  }

 private:
  static constexpr std::size_t block = 4096;
  static constexpr std::size_t blocks = sampled_bytes / block;

  const std::uint64_t total_;
  std::uint64_t position_ = 0;
  std::size_t next_ = 0;
};

std::uint64_t size_of(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw make_error(Errc::io, "cannot read {}: {}", path.string(), error.message());
  return size;
}

std::vector<std::uint64_t> sizes_of(const data::Source& source) {
  std::vector<std::uint64_t> sizes;
  for (const auto& path : source.files) sizes.push_back(size_of(path));
  return sizes;
}

SharedItem digest_of_files(const data::Source& source, const std::vector<std::uint64_t>& sizes, FileSequence& all) {
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto& path = source.files[i];
    const auto name = fmt::format("{}/{}/", path.filename().string(), sizes[i]);
    crc = crc32c(std::as_bytes(std::span(name)), crc);
    crc = all.add(crc, path, sizes[i]);
    bytes += sizes[i];
  }
  return {source.name, fmt::format("{} files, {}", sizes.size(), digest_text(bytes, crc))};
}

}  // namespace

std::string content_digest(std::span<const std::byte> bytes, bool is_whole) {
  constexpr std::size_t block = std::size_t{64} << 10;  // fewer reads of a file that is not in memory than by pages
  constexpr std::size_t blocks = sampled_bytes / block;
  if (is_whole || bytes.size() <= whole_digest_bytes) return digest_text(bytes.size(), crc32c(bytes));
  std::uint32_t crc = 0;
  for (std::size_t i = 0; i < blocks; ++i)
    crc = crc32c(bytes.subspan(static_cast<std::size_t>(block_offset(bytes.size(), block, blocks, i)), block), crc);
  return digest_text(bytes.size(), crc);
}

std::string file_digest(const std::filesystem::path& file) {
  return content_digest(MappedFile(file).bytes());
}

SharedItems digests_of(const std::vector<data::Source>& sources) {
  std::vector<std::vector<std::uint64_t>> sizes;
  std::uint64_t total = 0;
  for (const auto& source : sources) {
    sizes.push_back(sizes_of(source));
    for (const auto size : sizes.back()) total += size;
  }
  FileSequence files(total);
  SharedItems items;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& source = sources[i];
    if (source.files.empty())
      items.push_back({source.name, content_digest(source.bytes, source.is_labels)});
    else
      items.push_back(digest_of_files(source, sizes[i], files));
  }
  return items;
}

}  // namespace ddprun::trainer

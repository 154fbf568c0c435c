#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ddprun {

// A file in memory, read page by page when it is used, so that it may be larger than memory. Immovable in memory; the
// object may move. Read-only; thread-safe. A file that is cut short while it is mapped ends the process by SIGBUS.
class MappedFile {
 public:
  // Throws Errc::io naming the file and the cause, Errc::usage if it does not exist.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;  // empty for an empty file, which is not mapped
};

}  // namespace ddprun

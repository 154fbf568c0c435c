#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ddprun {

// A file that is mapped into memory, read-only, and read page by page on use, so it may be larger than memory. A file
// that is cut short while mapped ends the process by SIGBUS.
//
// Ownership: owns the mapping, to which bytes() refers; moving the object keeps it. Threads: any.
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

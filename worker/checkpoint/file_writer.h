#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/unique_fd.h"
#include "worker/checkpoint/disk_watch.h"
#include "worker/digest/sha256.h"

namespace ddprun::checkpoint {

// A file could not be opened or read although it may be intact: no permission, a failing disk, a file server that does
// not answer. Its content is unknown. A file that does not exist is a plain Errc::io instead.
class InaccessibleFile : public Error {
 public:
  explicit InaccessibleFile(const std::string& message) : Error(Errc::io, message) {}
};

// Size and hash of a file once it is on the disk.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::string sha256;  // hexadecimal
};

// A new file, written front to back and hashed on the way. Throws Errc::io naming the file and the cause (also a full
// disk).
class FileWriter {
 public:
  // watch: if set, each request is named to it. It outlives this object.
  explicit FileWriter(const std::filesystem::path& path, DiskWatch* watch = nullptr);

  void write(std::string_view bytes);
  void write(std::span<const std::byte> bytes);
  // Flushes to the disk and closes. The object must not be used afterwards.
  FileDigest finish();

 private:
  void request(const char* what, const std::function<void()>& read = {});  // as DiskWatch has it
  void write_piece(std::span<const std::byte> bytes);
  void flush_window();

  std::filesystem::path path_;
  DiskWatch* watch_;
  UniqueFd fd_;
  Sha256 hash_;
  std::uint64_t written_ = 0;
  std::uint64_t flushed_ = 0;  // up to here the disk has been waited for
};

// Opens a file for reading. This function and the three below throw InaccessibleFile, or Errc::io for a file that does
// not exist; the message names the file and the cause.
UniqueFd open_file(const std::filesystem::path& path);
std::string read_file(const std::filesystem::path& path);
// Opens a file and reads its first byte, if it has one.
void check_readable(const std::filesystem::path& path);
// Reads the whole file in pieces.
FileDigest digest_of_file(const std::filesystem::path& path);

}  // namespace ddprun::checkpoint

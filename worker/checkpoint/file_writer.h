#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ddprun/common/unique_fd.h"
#include "ddprun/worker/digest/sha256.h"

namespace ddprun::checkpoint {

// What is known of a file once it is on the disk.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::string sha256;  // hexadecimal
};

// A new file, written front to back and hashed on the way. Throws Errc::io naming the file and the cause (a full disk
// too).
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);

  void write(std::string_view bytes);
  void write(std::span<const std::byte> bytes);
  // Flushes to the disk and closes. Ends the use of this object.
  FileDigest finish();

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  Sha256 hash_;
  std::uint64_t written_ = 0;
};

// Reads the whole file in pieces. Throws Errc::io naming it.
FileDigest digest_of_file(const std::filesystem::path& path);

}  // namespace ddprun::checkpoint

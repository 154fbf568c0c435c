#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "common/unique_fd.h"

namespace ddprun {

// Reads what a worker writes to a file instead of a pipe to this process. Owns its descriptor. Not thread-safe. A file
// that cannot be read has nothing new.
class FileFollower {
 public:
  // Begins at most this many bytes before the present end, at the start of a line.
  FileFollower(const std::filesystem::path& file, std::size_t last_bytes);

  // Returns what has been added since the last call, at most 64 KiB of it.
  std::string read_new();

 private:
  UniqueFd file_;
  bool in_line_ = false;  // the beginning of a line was left out
};

}  // namespace ddprun

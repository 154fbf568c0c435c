#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "worker/checkpoint/file_writer.h"

namespace ddprun::checkpoint {

// Sizes and hashes of files, by name.
using FileDigests = std::map<std::string, FileDigest>;

// The list that makes a checkpoint's folder whole: its files. Written last.
struct Manifest {
  std::int64_t step = 0;
  bool has_parts = false;  // whether model and optimizer lie in parts of ranks, which earlier readers do not know
  FileDigests files;
};

inline constexpr std::string_view manifest_name = "manifest.json";

std::string to_json(const Manifest& manifest);
// Throws Errc::io naming source and what is wrong, including a file name with a '/'.
Manifest manifest_from_json(std::string_view text, const std::string& source);

}  // namespace ddprun::checkpoint

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "worker/checkpoint/file_writer.h"

namespace ddprun::checkpoint {

// The list that makes a checkpoint's folder whole: its files with their sizes and hashes. Written last.
struct Manifest {
  std::int64_t step = 0;
  std::map<std::string, FileDigest> files;
};

inline constexpr std::string_view manifest_name = "manifest.json";

std::string to_json(const Manifest& manifest);
// Throws Errc::io naming source and what is wrong, including a file name with a '/'.
Manifest manifest_from_json(std::string_view text, const std::string& source);

}  // namespace ddprun::checkpoint

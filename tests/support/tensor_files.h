#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/atomic_file.h"

namespace ddprun::testing {

// Returns the content of a checkpoint's files of tensors, by name. Throws Errc::io.
inline std::map<std::string, std::string> tensor_files(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors") files[entry.path().filename()] = read_whole_file(entry.path());
  return files;
}

}  // namespace ddprun::testing

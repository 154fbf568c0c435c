#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace ddprun::testing {

// Writes a file that may be executed, and makes its folder.
inline void write_script(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

}  // namespace ddprun::testing

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <zlib.h>

// Small IDX files for tests.
namespace ddprun::testing {

inline std::string idx_bytes(const std::vector<std::uint32_t>& shape, const std::string& values) {
  std::string out{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const auto extent : shape) {
    for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(extent >> shift);
  }
  return out + values;
}

inline void write_plain(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline void write_compressed(const std::filesystem::path& path, const std::string& bytes) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  ::gzclose(file);
}

}  // namespace ddprun::testing

#pragma once

#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace ddprun {

// Returns the first line of a file of /proc or /sys, without trailing blanks; nullopt if it cannot be read.
inline std::optional<std::string> first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
  return line;
}

// Returns the whole number in a file of /proc or /sys; nullopt if there is none.
inline std::optional<long> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  long value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

}  // namespace ddprun

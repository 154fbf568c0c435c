#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/config/settings.h"

namespace ddprun {

struct ConfigEntry {
  std::string key;  // "section.key"
  std::string value;
  std::string where;  // "train.cfg:12"
};

// Grammar of a train.cfg, line by line:
//   [section]         following keys belong to it
//   key = value       blanks around both are dropped
//   key = "a # b"     double quotes keep blanks and '#'
//   # comment         also behind a value
// Throws Errc::usage with file and line: a key outside a section, a line that is none of these, a key given twice.
std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view file_name);

// Throws Errc::usage when the file cannot be read.
std::vector<ConfigEntry> read_config(const std::filesystem::path& path);

// "--section.key=value" or "--section.key" "value" (one or two arguments). Throws Errc::usage on anything else.
std::vector<ConfigEntry> parse_overrides(const std::vector<std::string>& arguments);

// Assigns the entries of every section but those left alone.
void apply(Settings& settings, const std::vector<ConfigEntry>& entries, Origin origin,
           const std::vector<std::string>& ignored_sections = {});

}  // namespace ddprun

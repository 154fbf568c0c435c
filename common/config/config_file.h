#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/settings.h"

namespace ddprun {

struct ConfigEntry {
  std::string key;  // "section.key"
  std::string value;
  std::string where;  // "train.cfg:12"
};

// Grammar of a train.cfg, line by line:
//   [section]         the following keys belong to it
//   key = value       blanks around both are dropped
//   key = "a # b"     double quotes keep blanks and '#'
//   # comment         also after a value
// Throws Errc::usage with file and line for a key outside a section, any other line, a key given twice, and control
// characters or bytes that are not UTF-8, which the message shows as \xNN.
std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view file_name);

// Reads and parses a file; throws Errc::usage also if it cannot be read.
std::vector<ConfigEntry> read_config(const std::filesystem::path& path);

// "--section.key=value" or "--section.key" "value" (one or two arguments). Throws Errc::usage on anything else; where a
// name without a section is that of some of the keys, the error names these.
std::vector<ConfigEntry> parse_overrides(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& keys = {});

// Assigns the entries of all sections except the ignored ones.
void apply(Settings& settings, const std::vector<ConfigEntry>& entries, Origin origin,
           const std::vector<std::string>& ignored_sections = {});

}  // namespace ddprun

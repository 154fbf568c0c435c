#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun {

// A worker's name for its place in the job, such as "pipeline 1, data 0, tensor 1": a line in the file next to its
// error file (TORCHELASTIC_ERROR_FILE), for the launcher's report of its failure.

// Throws Errc::io.
void write_rank_label(const std::filesystem::path& error_file, std::string_view label);
// Returns the label as printable() gives it; empty if there is none.
std::string read_rank_label(const std::filesystem::path& error_file);

}  // namespace ddprun

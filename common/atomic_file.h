#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun {

// Replaces path as a whole: written aside, flushed to the disk, renamed, the folder flushed. A reader sees the old
// content or the new, also after a crash. Throws Errc::io naming the path and the cause; then path is as it was.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// The whole file. Throws Errc::io naming the path.
std::string read_whole_file(const std::filesystem::path& path);

// fsync of a folder, so that a rename in it survives a power cut.
void sync_folder(const std::filesystem::path& folder);

}  // namespace ddprun

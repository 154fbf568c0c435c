#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun {

// Replaces a file: writes a temporary file, syncs it, renames it and syncs the folder. A reader sees the old content or
// the new one, also after a crash. A device or a FIFO, such as /dev/null, is written to instead. Throws Errc::io naming
// the path and the cause; path is unchanged then.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// The content of a file. Throws Errc::io naming the path.
std::string read_whole_file(const std::filesystem::path& path);

// fsync(2) of a folder, so that a rename in it survives a power failure.
void sync_folder(const std::filesystem::path& folder);

}  // namespace ddprun

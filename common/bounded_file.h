#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ddprun {

// Reading files whose path or content this program does not control, in a bounded amount of memory. Thread-safe.

// The content of a regular file that another process has made, such as a worker's error file. The call never waits: a
// FIFO or a device is refused. Throws Errc::io naming the path, also for a file of more than limit bytes.
std::string read_regular_file(const std::filesystem::path& path, std::size_t limit);

// The first bytes of a regular file, at most limit; empty if it cannot be read.
std::string read_front_of_file(const std::filesystem::path& path, std::size_t limit);

// The last bytes of a regular file, at most limit; empty if it cannot be read.
std::string read_end_of_file(const std::filesystem::path& path, std::size_t limit);

// The content of a file that the user names, which may be a FIFO (process substitution). Throws Errc::io naming the
// path, also for more than limit bytes.
std::string read_named_file(const std::filesystem::path& path, std::size_t limit);

}  // namespace ddprun

#pragma once

#include <filesystem>

namespace ddprun {

// Throws Errc::io with the reason that errno has: "cannot write /tmp/a: No space left on device". what: "write".
// Threads: any.
[[noreturn]] void throw_io_error(const char* what, const std::filesystem::path& path);

}  // namespace ddprun

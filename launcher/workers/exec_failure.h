#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Explains an exec that failed with this errno, by examining the file: "cannot execute train.sh: its interpreter
// /bin/bsh (line 1) does not exist". Never fails.
std::string exec_failure_text(const std::filesystem::path& executable, int error_number);

}  // namespace ddprun

#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// "cannot execute train.sh: its interpreter /bin/bsh (line 1) does not exist": what an exec that failed with this errno
// means. Looks at the file.
std::string exec_failure_text(const std::filesystem::path& executable, int error_number);

}  // namespace ddprun

#pragma once

#include <filesystem>

#include "common/unique_fd.h"

namespace ddprun {

// Connects to the Unix socket at the path. Does not wait: fails with EAGAIN while its queue is full. The descriptor is
// non-blocking and closed on exec. Returns none, with errno set, on failure.
UniqueFd connect_unix(const std::filesystem::path& path);

}  // namespace ddprun

#pragma once

#include <string_view>

#include "common/unique_fd.h"

namespace ddprun {

// The workers that read the standard input of ddprun (--stdin); the others read /dev/null.
enum class WorkerInput { all, rank_0, none };

// The value of --stdin: all, 0 or none. REQUIRES: it is one of them.
WorkerInput parse_worker_input(std::string_view text);

// Returns a worker's standard input, or no descriptor for that of this process. Several workers share a pipe or a
// terminal: bytes that one of them reads the others do not get. A regular file is opened anew for each, at the present
// position, so that each reads all of it. Throws Errc::io when /dev/null cannot be opened.
UniqueFd open_input(WorkerInput input, int rank);

}  // namespace ddprun

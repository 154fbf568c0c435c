#pragma once

#include <span>
#include <string>

namespace ddprun {

// Replaces the environment of this process by these entries, "NAME=value". Those who look at the process from outside
// (ps, /proc/<pid>/environ) see them too, in this order, if they need no more room than the entries that the process
// was started with; otherwise they still see the former ones. What getenv(3) has returned before must not be used any
// more.
//
// Threads: no other thread may read the environment meanwhile. Errors: none; an entry without '=' is left out.
void replace_environment(std::span<const std::string> entries);

}  // namespace ddprun

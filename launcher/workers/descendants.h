#pragma once

#include <sys/types.h>
#include <vector>

namespace ddprun {

// Functions that find and adopt descendants of this process. Thread-safe; they never fail but may miss a process that
// is just being forked.

// Makes this process the parent of its orphaned descendants (PR_SET_CHILD_SUBREAPER), so that none escapes by starting
// its own session. Returns false where the kernel cannot do that.
bool become_subreaper();

// The living children of this process, from /proc; without zombies.
std::vector<pid_t> living_children();

// The living processes of a process group, from /proc; without zombies.
std::vector<pid_t> processes_of_group(pid_t group);

}  // namespace ddprun

#pragma once

#include <sys/types.h>
#include <vector>

namespace ddprun {

// Makes orphans among this process's descendants its own children, so that none escapes by making a session of its own.
// Returns false where the kernel does not know how.
bool adopt_orphans();

// The living children of this process, by a look through /proc; zombies are left out.
std::vector<pid_t> living_children();

// The living processes of a process group, likewise.
std::vector<pid_t> processes_of_group(pid_t group);

}  // namespace ddprun

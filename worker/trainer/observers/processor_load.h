#pragma once

#include <optional>
#include <string>

#include "worker/trainer/observers/thread_count.h"

namespace ddprun::trainer {

// Reads the tasks that run or wait for a processor at this moment: those of the machine by /proc/loadavg, less this
// process's own by /proc/self/task; takes some 10 us and as much again for each thread. In a container both may be the
// container's. None if the kernel does not report them.
std::optional<ThreadCount::Load> read_processor_load(const std::string& proc = "/proc");

}  // namespace ddprun::trainer

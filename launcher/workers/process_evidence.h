#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace ddprun {

// A fact about a process as a readable line: {"resident memory", "1.2 GiB"}.
struct ProcessFact {
  std::string name;
  std::string value;
  friend bool operator==(const ProcessFact&, const ProcessFact&) = default;
};

// Returns the state, threads and memory in the text of proc_pid_status(5). Pure.
std::vector<ProcessFact> facts_of_status(std::string_view status);

// Returns what /proc shows of a process: also where its main thread waits in the kernel, its processor time and its
// open files. The result is empty once the process has ended. What may not be read is left out.
std::vector<ProcessFact> process_facts(pid_t process);

}  // namespace ddprun

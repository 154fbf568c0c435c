#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "common/unique_fd.h"

// Evidence that the kernel killed a process because memory was exhausted, which SIGKILL alone does not show.
namespace ddprun {

// The folder of a process's memory controller, from the content of its /proc/<pid>/cgroup and /proc/<pid>/mountinfo;
// cgroup version 1 (also beside version 2) or 2. nullopt where there is no such controller.
struct MemoryCgroup {
  std::filesystem::path folder;
  bool unified = true;  // version 2
  std::string name;     // the cgroup's path: "/user.slice"

  std::filesystem::path counter() const { return folder / (unified ? "memory.events" : "memory.oom_control"); }
  std::filesystem::path limit() const { return folder / (unified ? "memory.max" : "memory.limit_in_bytes"); }
};
std::optional<MemoryCgroup> memory_cgroup(std::string_view cgroup, std::string_view mountinfo);

// The number after "oom_kill" in the content of counter().
std::optional<std::int64_t> oom_kills(std::string_view text);

// A record of a kill in the kernel's log: "Killed process 71 (python3) total-vm:..., anon-rss:65152kB, ...".
struct KernelKill {
  pid_t pid = 0;
  std::int64_t resident_kib = 0;
  bool by_cgroup_limit = false;  // false: the whole machine was out of memory
};
std::optional<KernelKill> parse_kernel_kill(std::string_view record);

// Formats a size: "64 MiB".
std::string memory_text(std::int64_t kib);

// Finds out whether the kernel killed a process since begin() because memory was exhausted.
//
// Ownership: owns its descriptor of the kernel's log. Threads: not thread-safe. Errors: none; if no source can be read
// the answer is unknown. Units: KiB.
class MemoryEvidence {
 public:
  struct Sources {
    std::optional<MemoryCgroup> cgroup;
    std::filesystem::path kernel_log;  // /dev/kmsg; empty: unreadable, or it has process ids of another namespace
    static Sources of_this_process();
  };
  explicit MemoryEvidence(Sources sources);

  // Ignores everything before this call.
  void begin();

  struct Finding {
    enum class Answer { unknown, no, yes } answer = Answer::unknown;
    std::string text;  // yes: "out of memory: ..."
  };
  // Call once a process that is none of those to be judged was killed: if the kernel did it, that is no evidence about
  // them.
  void leave_out_kill();

  // Returns whether the kernel kills all processes of the cgroup at once where memory is exhausted (memory.oom.group).
  bool kills_whole_cgroup() const;

  // Judges a process that was killed since begin(). peak_kib is its largest resident set.
  Finding about(pid_t pid, std::int64_t peak_kib);

 private:
  std::optional<KernelKill> find_in_log(pid_t pid);
  std::string limit_text() const;

  Sources sources_;
  UniqueFd log_;
  std::optional<std::int64_t> kills_before_;
};

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "ddprun/common/unique_fd.h"

// What the kernel says of processes that it killed for want of memory: a bare SIGKILL does not tell.
namespace ddprun {

// The memory controller's folder of a process, from the texts of its /proc/<pid>/cgroup and /proc/<pid>/mountinfo;
// version 1 (alone or beside 2) or 2. None where there is no such controller.
struct MemoryCgroup {
  std::filesystem::path folder;
  bool unified = true;  // version 2
  std::string name;     // as the kernel calls it: "/user.slice"

  std::filesystem::path counter() const { return folder / (unified ? "memory.events" : "memory.oom_control"); }
  std::filesystem::path limit() const { return folder / (unified ? "memory.max" : "memory.limit_in_bytes"); }
};
std::optional<MemoryCgroup> memory_cgroup(std::string_view cgroup, std::string_view mountinfo);

// The number behind "oom_kill" in the text of a counter().
std::optional<std::int64_t> oom_kills(std::string_view text);

// A record of the kernel's log that tells of a kill: "Killed process 71 (python3) total-vm:..., anon-rss:65152kB, ...".
struct KernelKill {
  pid_t pid = 0;
  std::int64_t resident_kib = 0;
  bool by_cgroup_limit = false;  // else the whole machine had no memory left
};
std::optional<KernelKill> parse_kernel_kill(std::string_view record);

// "64 MiB"
std::string memory_text(std::int64_t kib);

// Watches the sources from begin() on.
class MemoryEvidence {
 public:
  struct Sources {
    std::optional<MemoryCgroup> cgroup;
    std::filesystem::path kernel_log;  // /dev/kmsg, or empty: unreadable, or its process ids are none of ours
    static Sources of_this_process();
  };
  explicit MemoryEvidence(Sources sources);

  // What was before is of no concern.
  void begin();

  struct Finding {
    enum class Answer { unknown, no, yes } answer = Answer::unknown;
    std::string text;  // yes: "out of memory: ..."
  };
  // About a process that was killed since. peak_kib: the most memory it ever had resident.
  Finding about(pid_t pid, std::int64_t peak_kib);

 private:
  std::optional<KernelKill> find_in_log(pid_t pid);
  std::string limit_text() const;

  Sources sources_;
  UniqueFd log_;
  std::optional<std::int64_t> kills_before_;
};

}  // namespace ddprun

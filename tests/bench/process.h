#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "common/deadline.h"

namespace ddprun::bench {

using Words = std::vector<std::string>;

// The first executable file of that name in the folders of PATH.
std::optional<std::string> find_on_path(const std::string& name);

struct ProcessOptions {
  std::vector<std::string> environment{};  // "NAME=value"; empty: this process's own
  bool show_errors = false;                // otherwise standard error is discarded, as standard output always is
  // Leads a process group. The destructor asks it to end, then kills the rest of it and of all that it started, in any
  // session and with any parent.
  bool own_group = false;
};

// A program under measurement, started with minimal cost: posix_spawn. One that has not been waited for is killed and
// reaped by the destructor.
class Process {
 public:
  // command[0] is a path. Throws Errc::io.
  explicit Process(const Words& command, const ProcessOptions& options = {});
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        own_group_(other.own_group_),
        name_(std::move(other.name_)),
        mark_(std::move(other.mark_)) {}
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  // Waits for its end. Returns the peak memory in MiB, of the process or of its largest child; at least this program's
  // own, which the new process has for a moment. Throws Errc::io when it did not end with 0.
  double wait();
  // Returns whether it has ended, with any exit code, when it has or the deadline passes.
  bool ends_before(Deadline deadline) const;

 private:
  pid_t pid_ = -1;
  bool own_group_ = false;
  std::string name_;
  std::string mark_;  // a variable of its environment that everything it starts inherits, and no other process has
};

}  // namespace ddprun::bench

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "common/deadline.h"
#include "common/unique_fd.h"

namespace ddprun {

// A record that the agent sends to a guardian: this header, followed by the text of a path or a marker.
struct GuardianRecord {
  enum class Command : int { add_group, remove_group, set_marker, add_path, remove_path };
  static constexpr std::size_t max_text = 1023;

  Command command = Command::add_group;
  int value = 0;  // the process group, or the length of the text
};

// One process that reads records from a pipe and, at its end of file, kills and removes what they name: see Guardian.
//
// Ownership: the destructor closes the pipe and does not wait for the end of the process. Threads: single-threaded,
// except send_own_group(). Errors: start() and wait_until_detached() throw Errc::io.
class GuardianProcess {
 public:
  // name is its name in ps(1), at most 15 characters.
  explicit GuardianProcess(std::string name) : name_(std::move(name)) {}
  GuardianProcess(GuardianProcess&&) = default;

  enum class Method { fork, exec };
  // Starts it, by exec where threads may exist. A signal to this process group may end it as well until
  // wait_until_detached() has returned.
  void start(Method method);
  void wait_until_detached();
  // Starts it by fork, for a caller that does not wait.
  void start_unawaited();

  // All of these give up when the process has ended. If it reads nothing for a second, they kill it: it is replaced.
  void send(GuardianRecord::Command command, std::span<const pid_t> groups);
  void send(GuardianRecord::Command command, std::string_view text);
  // Sends add_group for the calling process, between fork and exec; never waits; async-signal-safe. Ignores failures.
  void send_own_group() const noexcept;

  // Closes the pipe, and continues a process that is stopped.
  void close();
  // Waits for the process's end. Returns false if the deadline passes first.
  bool wait_for_end(Deadline deadline) const;
  // Ends it by SIGKILL, waits at most a second for that, and reaps it.
  void kill();
  // Returns the signal that ended it; 0 when there was none, or when it has not ended.
  int reap();
  // waitpid(-1) has reaped it.
  void record_end(int signal_number);

  pid_t pid() const { return pid_; }
  // Returns a pidfd, readable once the process has ended; -1 where the kernel has none (before 5.2).
  int exit_descriptor() const { return pidfd_.get(); }

 private:
  void launch(Method method, int error_pipe);
  void send(const char* bytes, std::size_t size);
  void signal(int signal_number) const;
  [[noreturn]] void execute(int pipe, int error_pipe) const;

  std::string name_;
  UniqueFd pipe_;
  UniqueFd pidfd_;
  UniqueFd detached_;  // end of file, or the error of a failed exec
  pid_t pid_ = -1;
  bool reaped_ = false;
  int end_signal_ = 0;
};

// Runs the guardian itself: it reads standard input. See GuardianProcess for name.
[[noreturn]] void run_guardian(const char* name);

}  // namespace ddprun

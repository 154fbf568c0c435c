#include "launcher/workers/health_check.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "common/deadline.h"
#include "common/error.h"
#include "common/pipe.h"
#include "common/printable.h"
#include "common/signal_name.h"
#include "common/unique_fd.h"
#include "launcher/workers/descendants.h"
#include "launcher/workers/worker_input.h"
#include "launcher/workers/worker_process.h"

namespace ddprun {
namespace {

// This much of the end of the output is kept, since the end usually has the reason.
constexpr std::size_t kept_output = 2000;

// A killed process that waits for a device ends later, if ever; the guardian handles it then.
constexpr std::chrono::milliseconds kill_timeout{2000};
// The interval at which the end is polled on a kernel without pidfds (before 5.3, or with a filter of system calls).
constexpr std::chrono::milliseconds look_interval{20};

// The process group of the check; its processes end with this object.
class CheckProcess {
 public:
  // There is no function for pidfd_open(2) before version 2.36 of the C library.
  CheckProcess(const ProcessSpec& spec, Guardian& guardian)
      : guardian_(guardian),
        process_(start_process(spec, guardian)),
        end_(static_cast<int>(::syscall(SYS_pidfd_open, process_.pid, 0))) {}
  ~CheckProcess() {
    ::kill(-process_.pid, SIGKILL);
    const auto deadline = Deadline::in(kill_timeout);
    std::string ignored;
    const bool ended = status_ || wait_for_end(-1, deadline, ignored);
    if (ended && wait_for_group(deadline)) guardian_.remove_groups({{process_.pid}});
  }
  CheckProcess(const CheckProcess&) = delete;
  CheckProcess& operator=(const CheckProcess&) = delete;

  // Collects the output of a descriptor, -1 for none, until the process has ended. Returns false when the deadline
  // passed first.
  bool wait_for_end(int output_fd, Deadline deadline, std::string& output);
  // Returns its status as wait(2) reports it. REQUIRES: it has ended.
  int status() const { return *status_; }
  // Returns the errno with which its exec failed, or 0.
  int start_error() const { return exec_error(process_); }

 private:
  // Reaps the rest of the group, of which this process is the parent once theirs have ended. Returns false when the
  // deadline passed first.
  bool wait_for_group(Deadline deadline) const {
    constexpr std::chrono::milliseconds interval{1};
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-process_.pid, nullptr, WNOHANG)) >= 0) {
      if (reaped > 0) continue;
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(interval);
    }
    return true;
  }
  bool has_ended() {
    int status = 0;
    if (!status_ && ::waitpid(process_.pid, &status, WNOHANG) == process_.pid) status_ = status;
    return status_.has_value();
  }

  Guardian& guardian_;
  StartedProcess process_;
  UniqueFd end_;               // becomes readable when the process has ended; empty where the kernel has no pidfds
  std::optional<int> status_;  // set once it was reaped
};

// Returns false at the end of the output.
bool read_output(int fd, std::string& output) {
  char block[4096];
  for (;;) {
    const auto got = ::read(fd, block, sizeof(block));
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    output.append(block, static_cast<std::size_t>(got));
    if (output.size() > kept_output) output.erase(0, output.size() - kept_output);
  }
}

bool CheckProcess::wait_for_end(int output_fd, Deadline deadline, std::string& output) {
  while (!has_ended()) {
    if (deadline.expired()) return false;
    pollfd watched[] = {{end_.get(), POLLIN, 0}, {output_fd, POLLIN, 0}};
    const auto wake = end_ ? deadline : earlier(deadline, Deadline::in(look_interval));
    if (::poll(watched, 2, wake.poll_timeout_ms()) < 0) continue;  // a signal
    if (watched[1].revents != 0 && !read_output(output_fd, output)) output_fd = -1;
  }
  if (output_fd >= 0) read_output(output_fd, output);
  return true;
}

std::string text_of_status(int status) {
  if (WIFSIGNALED(status)) return "was ended by " + signal_name(WTERMSIG(status));
  return fmt::format("failed with exit code {}", WEXITSTATUS(status));
}

// A single line stays one; several follow, indented.
std::string text_of_output(std::string output) {
  while (!output.empty() && output.back() == '\n') output.pop_back();
  if (output.empty()) return ", without output";
  if (output.find('\n') == std::string::npos) return ": " + printable(output);
  std::string text = ":";
  for (std::size_t begin = 0; begin <= output.size();) {
    const auto end = std::min(output.find('\n', begin), output.size());
    text += "\n  " + printable(output.substr(begin, end - begin));
    begin = end + 1;
  }
  return text;
}

}  // namespace

void run_health_check(const HealthCheck& check, const Environment& environment, Guardian& guardian) {
  become_subreaper();
  auto pipe = make_pipe();
  ::fcntl(pipe.reader.get(), F_SETFL, O_NONBLOCK);
  const auto variables = environment.entries();
  const auto input = open_input(WorkerInput::none, 0);  // ddprun's own is for the workers
  CheckProcess process({.executable = "/bin/sh",
                        .arguments = {"sh", "-c", check.command},
                        .environment = variables,
                        .in = input.get(),
                        .out = pipe.writer.get(),
                        .err = pipe.writer.get()},
                       guardian);
  guardian.confirm_groups();
  pipe.writer.reset();
  std::string output;
  const bool ended = process.wait_for_end(pipe.reader.get(), Deadline::in(check.timeout), output);
  const auto fail = [&](const std::string& how) {
    throw make_error(Errc::io, "host {} does not join the job: its health check '{}' {}{}", check.host, check.command,
                     how, text_of_output(output));
  };
  if (!ended) fail(fmt::format("has not ended within {:.0f} s", std::chrono::duration<double>(check.timeout).count()));
  if (const int error = process.start_error(); error != 0) fail("cannot be started: " + errno_text(error));
  if (process.status() != 0) fail(text_of_status(process.status()));
}

}  // namespace ddprun

#include "ddprun/launcher/workers/health_check.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "ddprun/common/deadline.h"
#include "ddprun/common/error.h"
#include "ddprun/common/pipe.h"
#include "ddprun/common/printable.h"
#include "ddprun/common/signal_name.h"
#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/workers/worker_process.h"

namespace ddprun {
namespace {

// So much of the end of the output is kept, since the end usually has the reason.
constexpr std::size_t kept_output = 2000;

// The process group of the check; its processes end with this object.
class CheckProcess {
 public:
  CheckProcess(const ProcessSpec& spec, Guardian& guardian)
      : guardian_(guardian), process_(start_process(spec, guardian)) {
    guardian_.confirm_groups();
    // There is no function for it before version 2.36 of the C library.
    end_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process_.pid, 0)));
  }
  ~CheckProcess() {
    ::kill(-process_.pid, SIGKILL);
    if (!reaped_) ::waitpid(process_.pid, nullptr, 0);
    guardian_.remove_groups({{process_.pid}});
  }
  CheckProcess(const CheckProcess&) = delete;
  CheckProcess& operator=(const CheckProcess&) = delete;

  // Becomes readable when the process has ended.
  int end() const { return end_.get(); }
  // REQUIRES: it has ended. Returns its status as wait(2) does.
  int reap() {
    int status = 0;
    ::waitpid(process_.pid, &status, 0);
    reaped_ = true;
    return status;
  }
  // The errno with which its exec failed, or 0.
  int start_error() const { return exec_error(process_); }

 private:
  Guardian& guardian_;
  StartedProcess process_;
  UniqueFd end_;
  bool reaped_ = false;
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

// Collects the output until the process has ended. Returns false when the deadline came first.
bool wait_for_end(const CheckProcess& process, int output_fd, Deadline deadline, std::string& output) {
  bool open = true;
  for (;;) {
    pollfd watched[] = {{process.end(), POLLIN, 0}, {open ? output_fd : -1, POLLIN, 0}};
    const int ready = ::poll(watched, 2, deadline.poll_timeout_ms());
    if (ready < 0 && errno != EINTR) throw make_error(Errc::io, "cannot wait for a process: {}", errno_text(errno));
    if (watched[1].revents != 0) open = read_output(output_fd, output);
    if (watched[0].revents != 0) {
      if (open) read_output(output_fd, output);
      return true;
    }
    if (deadline.expired()) return false;
  }
}

std::string text_of_status(int status) {
  if (WIFSIGNALED(status)) return "was ended by " + signal_name(WTERMSIG(status));
  return fmt::format("failed with exit code {}", WEXITSTATUS(status));
}

// One line stays one; several follow, indented.
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
  auto pipe = make_pipe();
  ::fcntl(pipe.reader.get(), F_SETFL, O_NONBLOCK);
  const auto variables = environment.entries();
  CheckProcess process({.executable = "/bin/sh",
                        .arguments = {"sh", "-c", check.command},
                        .environment = variables,
                        .out = pipe.writer.get(),
                        .err = pipe.writer.get()},
                       guardian);
  pipe.writer.reset();
  std::string output;
  const bool ended = wait_for_end(process, pipe.reader.get(), Deadline::in(check.timeout), output);
  const auto fail = [&](const std::string& how) {
    throw make_error(Errc::io, "host {} does not join the job: its health check '{}' {}{}", check.host, check.command,
                     how, text_of_output(output));
  };
  if (!ended) fail(fmt::format("has not ended within {:.0f} s", std::chrono::duration<double>(check.timeout).count()));
  const int status = process.reap();
  if (const int error = process.start_error(); error != 0) fail("cannot be started: " + errno_text(error));
  if (status != 0) fail(text_of_status(status));
}

}  // namespace ddprun

#include "tests/bench/sweeper.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "common/deadline.h"
#include "common/error.h"
#include "tests/support/netns.h"
#include "tests/support/processes.h"

namespace ddprun::bench {
namespace {

using namespace std::chrono_literals;

constexpr const char* variable = "DDPRUN_BENCH_RUN";
constexpr auto grace = 3s;        // time for launchers to stop their workers
constexpr auto time_limit = 10s;  // time for the kernel to end killed processes

// Signals each process that has the mark once, until none is left or the time is over; a process that is forked
// meanwhile is found next time.
void end_marked(const std::string& mark, int signal_number, std::chrono::seconds time) {
  const auto deadline = Deadline::in(time);
  std::set<pid_t> told;
  for (auto left = testing::processes_with(mark); !left.empty() && !deadline.expired();
       left = testing::processes_with(mark)) {
    for (const pid_t pid : left)
      if (told.insert(pid).second) ::kill(pid, signal_number);
    std::this_thread::sleep_for(20ms);
  }
}

void let_go_of_everything_but(int pipe) {
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) std::signal(signal, SIG_IGN);
  if (pipe != 0) ::dup2(pipe, 0);
  ::syscall(SYS_close_range, 1U, ~0U, 0U);
}

// The pipe ends when the program does.
[[noreturn]] void sweep_after(int pipe, pid_t program, const std::string& mark) {
  let_go_of_everything_but(pipe);
  char nothing = 0;
  while (::read(0, &nothing, 1) < 0 && errno == EINTR) continue;
  end_marked(mark, SIGTERM, grace);
  end_marked(mark, SIGKILL, time_limit);
  testing::NetnsHosts::remove_all_of(program);
  ::_exit(0);
}

}  // namespace

Sweeper::Sweeper() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw make_error(Errc::io, "cannot make a pipe: {}", errno_text(errno));
  const UniqueFd read_end(ends[0]);
  pipe_ = UniqueFd(ends[1]);
  const auto program = ::getpid();
  const auto value = std::to_string(program);
  pid_ = ::fork();
  if (pid_ < 0) throw make_error(Errc::io, "fork failed: {}", errno_text(errno));
  if (pid_ == 0) sweep_after(read_end.get(), program, variable + ("=" + value));
  ::setenv(variable, value.c_str(), 1);
}

Sweeper::~Sweeper() {
  ::kill(pid_, SIGKILL);  // there is nothing to sweep
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace ddprun::bench

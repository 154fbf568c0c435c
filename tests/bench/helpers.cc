#include "tests/bench/helpers.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "common/error.h"

namespace ddprun::bench {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw make_error(Errc::io, "pipe failed: {}", errno_text(errno));
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

[[noreturn]] void run(const std::function<void(Line& line)>& work, Line line) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    work(line);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ddprun-bench: %s\n", e.what());
    status = 1;
  }
  ::_exit(status);
}

}  // namespace

void Line::say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(out_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw make_error(Errc::io, "a helper process has gone: {}", errno_text(errno));
}

std::string Line::hear() {
  std::string line;
  for (char c = 0;;) {
    const auto n = ::read(in_.get(), &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Error(Errc::io, "a helper process has gone");
    if (c == '\n') return line;
    line.push_back(c);
  }
}

struct Helper::Parts {
  pid_t pid;
  Line line;
};

Helper::Parts Helper::start(const std::function<void(Line& line)>& work) {
  auto down = make_pipe(), up = make_pipe();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw make_error(Errc::io, "fork failed: {}", errno_text(errno));
  if (pid == 0) {
    down.write.reset();
    up.read.reset();
    run(work, Line(std::move(down.read), std::move(up.write)));
  }
  return {pid, Line(std::move(up.read), std::move(down.write))};
}

Helper::Helper(const std::function<void(Line& line)>& work) : Helper(start(work)) {}
Helper::Helper(Parts parts) : pid_(parts.pid), line_(std::move(parts.line)) {}
Helper::Helper(Helper&& other) noexcept : pid_(std::exchange(other.pid_, -1)), line_(std::move(other.line_)) {}

Helper::~Helper() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::size_t Helper::resident_bytes() const {
  std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
  std::size_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace ddprun::bench

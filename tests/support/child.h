#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <functional>
#include <map>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/unique_fd.h"

namespace ddprun::testing {

// A program under test, started with pipes as its standard output and standard error. They are read during every wait.
// The destructor kills and reaps a program that still runs. Every wait has a deadline. The exception at the
// deadline contains the awaited condition and the program's output.
class Child {
 public:
  static constexpr std::chrono::seconds default_timeout{20};

  struct Result {
    int code = 0;           // exit code; 0 when ended by a signal
    int signal_number = 0;  // 0 when it ended by itself
    std::string out;
    std::string err;
    std::size_t peak_memory = 0;  // bytes, resident: the most that it, or a process that it has waited for, has had
  };

  // arguments[0] is a path. Added variables replace those of this process.
  explicit Child(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables = {}) {
    auto environment = Environment::capture();
    for (const auto& [name, value] : variables) environment.set(name, value);
    name_ = arguments.at(0);
    int out[2];
    int err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    out_.fd = UniqueFd(out[0]);
    err_.fd = UniqueFd(err[0]);
    const UniqueFd out_end(out[1]);
    const UniqueFd err_end(err[1]);
    const auto argv = pointers(arguments);
    const auto entries = environment.entries();
    const auto envp = pointers(entries);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::dup2(out_end.get(), 1);
      ::dup2(err_end.get(), 2);
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    if (pid_ < 0) throw std::runtime_error("fork failed");
    ::setpgid(pid_, pid_);  // in the parent too, so that the group exists from now on
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (result_) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

  // Closes the read end of its standard output.
  void leave_out() {
    out_.fd.reset();
    out_.ended = true;
  }

  // Waits until the program has ended and its pipes have no writer left.
  Result wait(std::chrono::milliseconds timeout = default_timeout) {
    pump_until([&] { return out_.ended && err_.ended; }, "the end", timeout);
    int status = 0;
    rusage use{};
    while (::wait4(pid_, &status, 0, &use) < 0 && errno == EINTR) continue;
    result_ = Result{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                     .signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                     .out = out_.text,
                     .err = err_.text,
                     .peak_memory = static_cast<std::size_t>(use.ru_maxrss) * 1024};
    if (err_.text.find("Sanitizer: ") != std::string::npos || err_.text.find(": runtime error: ") != std::string::npos)
      std::fputs(err_.text.c_str(), stderr);  // shows reports of sanitizers
    return *result_;
  }
  void wait_for_out(const std::string& text, std::chrono::milliseconds timeout = default_timeout) {
    pump_until([&] { return out_.text.find(text) != std::string::npos; }, "'" + text + "' on stdout", timeout);
  }
  void wait_for_err(const std::string& text, std::chrono::milliseconds timeout = default_timeout) {
    pump_until([&] { return err_.text.find(text) != std::string::npos; }, "'" + text + "' on stderr", timeout);
  }
  // Polls every few milliseconds, for conditions outside of the pipes (a file, a process).
  void wait_until(const std::function<bool()>& condition, const std::string& what,
                  std::chrono::milliseconds timeout = default_timeout) {
    pump_until(condition, what, timeout);
  }

 private:
  struct Stream {
    UniqueFd fd;
    std::string text;
    bool ended = false;
  };

  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  }

  void pump_until(const std::function<bool()>& done, const std::string& what, std::chrono::milliseconds timeout) {
    const auto deadline = Deadline::in(timeout);
    while (!done()) {
      if (deadline.expired())
        throw std::runtime_error(name_ + ": no " + what + " in time\n--- stdout\n" + out_.text + "--- stderr\n" +
                                 err_.text);
      pump();
    }
  }

  void pump() {
    pollfd entries[2] = {{out_.ended ? -1 : out_.fd.get(), POLLIN, 0}, {err_.ended ? -1 : err_.fd.get(), POLLIN, 0}};
    ::poll(entries, 2, 5);
    if (entries[0].revents != 0) read(out_);
    if (entries[1].revents != 0) read(err_);
  }

  static void read(Stream& stream) {
    char block[16384];
    const auto got = ::read(stream.fd.get(), block, sizeof(block));
    if (got > 0) stream.text.append(block, static_cast<std::size_t>(got));
    if (got == 0) stream.ended = true;
  }

  std::string name_;
  pid_t pid_ = -1;
  Stream out_;
  Stream err_;
  std::optional<Result> result_;
};

// Runs a program to its end.
inline Child::Result run_child(const std::vector<std::string>& arguments,
                               const std::map<std::string, std::string>& variables = {}) {
  return Child(arguments, variables).wait();
}

}  // namespace ddprun::testing

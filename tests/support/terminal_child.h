#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <poll.h>
#include <pty.h>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/unique_fd.h"
#include "tests/support/screen_emulator.h"

namespace ddprun::testing {

// A program under test whose controlling terminal, standard input, output and error are a terminal of 80 columns and 24
// rows. The terminal is read during every wait. Otherwise it is like Child.
class TerminalChild {
 public:
  static constexpr std::chrono::seconds default_timeout{20};

  // arguments[0] is a path. Added variables replace those of this process.
  explicit TerminalChild(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& variables = {}) {
    auto environment = Environment::capture();
    environment.set("TERM", "xterm");
    for (const auto& [name, value] : variables) environment.set(name, value);
    const auto argv = pointers(arguments);
    const auto entries = environment.entries();
    const auto envp = pointers(entries);
    const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    if (pid_ < 0) throw std::runtime_error("forkpty failed");
    terminal_ = UniqueFd(master);
  }
  TerminalChild(const TerminalChild&) = delete;
  TerminalChild& operator=(const TerminalChild&) = delete;
  ~TerminalChild() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }

  // All output so far.
  const std::string& text() const { return text_; }
  // The rows that the terminal shows.
  std::vector<std::string> rows() const { return screen_.rows(); }

  // The exit code, 1000 + n when ended by signal n.
  int wait() {
    int status = 0;
    pump_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, "end");
    pid_ = -1;
    while (terminal_ && pump()) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void wait_for(const std::string& text) {
    pump_until([&] { return text_.find(text) != std::string::npos; }, "'" + text + "'");
  }
  // Polls every few milliseconds.
  void wait_until(const std::function<bool()>& condition, const std::string& what) { pump_until(condition, what); }

  // Types keyboard input.
  void type(const std::string& text) {
    if (::write(terminal_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("cannot type");
  }
  void resize(unsigned short columns, unsigned short rows) {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (::ioctl(terminal_.get(), TIOCSWINSZ, &size) != 0) throw std::runtime_error("TIOCSWINSZ failed");
  }
  // Closes the terminal.
  void hang_up() { terminal_.reset(); }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  }

  void pump_until(const std::function<bool()>& done, const std::string& what) {
    const auto deadline = Deadline::in(default_timeout);
    while (!done()) {
      if (deadline.expired()) throw std::runtime_error("no " + what + " in time\n--- terminal\n" + text_);
      pump();
    }
  }

  // Returns false when there was nothing to read.
  bool pump() {
    pollfd entry{terminal_.get(), POLLIN, 0};
    if (::poll(&entry, 1, 5) <= 0) return false;
    char block[4096];
    const auto got = ::read(terminal_.get(), block, sizeof(block));
    if (got <= 0) {
      ::usleep(2000);  // EIO: the programs of the terminal have ended
      return false;
    }
    text_.append(block, static_cast<std::size_t>(got));
    screen_.feed({block, static_cast<std::size_t>(got)});
    return true;
  }

  pid_t pid_ = -1;
  UniqueFd terminal_;
  std::string text_;
  ScreenEmulator screen_;
};

}  // namespace ddprun::testing

#include "worker/comm/health/exit_futex.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <linux/futex.h>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/mapped_file.h"
#include "common/unique_fd.h"
#include "worker/comm/health/local_processes.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

constexpr std::chrono::seconds limit{60};

#define REQUIRE_FUTEX_WAITV() \
  if (::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0) < 0 && errno == ENOSYS) SKIP("a kernel before 5.16")

// Waits until another thread of this process owns the futex at this address.
void await_owner(const std::string& address) {
  const MappedFile memory(address);
  std::vector<std::uint32_t> words(memory.bytes().size() / sizeof(std::uint32_t));
  const auto is_owned = [&] {
    std::memcpy(words.data(), memory.bytes().data(), words.size() * sizeof(std::uint32_t));
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
      if (std::ranges::count(words, std::stoul(thread.path().filename()) | FUTEX_WAITERS) > 0) return true;
    return false;
  };
  while (!is_owned()) std::this_thread::yield();
}

// Returns the process in a line of LocalProcesses::registration().
ExitFutexMonitor::Process process_of(const std::string& registration) {
  ExitFutexMonitor::Process result{.rank = 0, .identity = {}, .address = {}};
  std::istringstream fields(registration);
  fields >> result.rank >> result.identity.pid >> result.identity.start_time >> result.address;
  return result;
}

// A child process, as rank 2, whose main thread stops while it exits and stays so until end(). Its other threads end.
class ExitingChild {
 public:
  ExitingChild() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    const UniqueFd from_child(ends[0]), to_parent(ends[1]);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) run(to_parent.get());
    await_stop();
    std::array<char, 500> text{};
    registration_.assign(text.data(), static_cast<std::size_t>(::read(from_child.get(), text.data(), text.size())));
    REQUIRE(::ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL) == 0);
  }
  ~ExitingChild() { end(); }
  ExitingChild(const ExitingChild&) = delete;
  ExitingChild& operator=(const ExitingChild&) = delete;

  pid_t pid() const { return pid_; }
  // Its line for LocalProcesses::watch().
  const std::string& registration() const { return registration_; }

  // Returns once its main thread has stopped in its exit.
  void exit() {
    REQUIRE(::ptrace(PTRACE_CONT, pid_, nullptr, 0) == 0);
    REQUIRE(await_stop() >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8)));
  }
  void end() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::ptrace(PTRACE_CONT, pid_, nullptr, 0);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  [[noreturn]] static void run(int to_parent) {
    const LocalProcesses processes(2, [] {});
    const auto line = processes.registration();
    await_owner(process_of(line).address);
    if (::write(to_parent, line.data(), line.size()) != std::ssize(line)) std::abort();
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int await_stop() const {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    REQUIRE(WIFSTOPPED(status));
    return status;
  }

  pid_t pid_ = -1;
  std::string registration_;
};

}  // namespace

TEST_CASE("all that watch a process know that it ends before each of its threads has ended") {
  REQUIRE_FUTEX_WAITV();
  ExitingChild child;
  std::promise<void> first_knows, second_knows;
  LocalProcesses first(0, [&] { first_knows.set_value(); }), second(1, [&] { second_knows.set_value(); });
  first.watch(child.registration());
  second.watch(child.registration());
  const UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, child.pid(), 0)));
  child.exit();
  CHECK(first_knows.get_future().wait_for(limit) == std::future_status::ready);
  CHECK(second_knows.get_future().wait_for(limit) == std::future_status::ready);
  CHECK(first.take_ended() == std::vector{2});
  CHECK(second.take_ended() == std::vector{2});
  pollfd readable{end.get(), POLLIN, 0};
  CHECK(::poll(&readable, 1, 0) == 0);
}

TEST_CASE("a process that ended before it was watched is reported, and none that has its id at another time") {
  REQUIRE_FUTEX_WAITV();
  ExitingChild child;
  child.exit();
  const auto process = process_of(child.registration());
  auto earlier = process;
  earlier.rank = 1;
  --earlier.identity.start_time;
  std::promise<int> ended;
  const ExitFutexMonitor monitor({earlier, process}, [&](int rank) { ended.set_value(rank); });
  auto rank = ended.get_future();
  REQUIRE(rank.wait_for(limit) == std::future_status::ready);
  CHECK(rank.get() == 2);
}

TEST_CASE("groups of a process share a futex, and a forked child has one of its own") {
  const auto futex = ExitFutex::of_this_process();
  CHECK(ExitFutex::of_this_process() == futex);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ExitFutex::of_this_process() == futex ? 1 : 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a process that gives up its futex and goes on is not reported") {
  REQUIRE_FUTEX_WAITV();
  ExitingChild child;
  auto process = process_of(child.registration());
  std::promise<int> ended;
  auto rank = ended.get_future();
  std::optional<ExitFutex> own(std::in_place);
  const ExitFutexMonitor monitor({{1, ProcessIdentity::own(), own->address()}, process},
                                 [&](int each) { ended.set_value(each); });
  await_owner(own->address());
  own.reset();
  child.exit();
  REQUIRE(rank.wait_for(limit) == std::future_status::ready);
  CHECK(rank.get() == 2);
}

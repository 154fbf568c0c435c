#include "worker/comm/health/local_processes.h"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

namespace {

// poll() refuses more descriptors than a process may have open.
class FewDescriptors {
 public:
  FewDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &previous_);
    const rlimit few{1, previous_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &previous_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit previous_{};
};

// Returns the registration of a rank whose process is a child. The child has started before its files in /proc can be
// read: fork() has returned.
std::string registration_of(int rank, pid_t child) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(child) + "/stat"), stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string start_time;
  for (int field = 3; field <= 22; ++field) fields >> start_time;
  return std::to_string(rank) + " " + std::to_string(child) + " " + start_time + " -\n";
}

}  // namespace

TEST_CASE("a monitor that cannot poll any more ends its thread") {
  const auto own = ProcessIdentity::own();
  const ProcessIdentity ended{own.pid, own.start_time + 1};
  std::optional<FewDescriptors> few;
  std::promise<long> thread_id;
  const ProcessMonitor monitor({{0, ended}, {1, own}}, [&](int) {
    few.emplace();
    thread_id.set_value(::syscall(SYS_gettid));
  });
  const auto thread = thread_id.get_future().get();
  while (::syscall(SYS_tgkill, own.pid, thread, 0) == 0) std::this_thread::yield();
  CHECK(errno == ESRCH);
}

TEST_CASE("the other processes of this host are watched from their registrations, and their states are told apart") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    while (true) ::pause();
  }
  std::promise<void> ended;
  LocalProcesses processes(0, [&] { ended.set_value(); });
  const LocalProcesses other(1, [] {});
  processes.watch(processes.registration() + other.registration() + registration_of(2, child));
  CHECK(processes.take_ended().empty());
  CHECK(processes.states().size() == 2);
  CHECK(processes.states()[2].find("its process lives") == 0);
  ::kill(child, SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  CHECK(processes.states()[2] == "its process is stopped");
  ::kill(child, SIGKILL);
  ended.get_future().wait();
  CHECK(processes.take_ended() == std::vector{2});
  CHECK(processes.take_ended().empty());
  CHECK(processes.states()[2] == "its process has ended");
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("a process of this host that computes is told from one that is stopped or has ended") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  while (child == 0) std::this_thread::yield();
  LocalProcesses processes(0, [] {});
  const LocalProcesses other(1, [] {});
  processes.watch(other.registration() + registration_of(2, child));
  CHECK(processes.runs(2));
  CHECK_FALSE(processes.runs(1));  // of this process
  CHECK_FALSE(processes.runs(3));  // of another host
  ::kill(child, SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  CHECK_FALSE(processes.runs(2));
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(processes.runs(2));
}

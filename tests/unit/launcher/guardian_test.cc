#include <csignal>
#include <sys/wait.h>

#include "launcher/workers/guardian_process.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

struct Started {
  GuardianProcess process{"test-guardian"};
  Started() {
    std::signal(SIGPIPE, SIG_IGN);
    process.start(GuardianProcess::Method::fork);
    process.wait_until_detached();
  }
  ~Started() { process.kill(); }
  bool ended() const { return process.wait_for_end(Deadline::in(std::chrono::seconds(20))); }
};

}  // namespace

TEST_CASE("a guardian ends when its pipe is closed, also one that is stopped") {
  Started guardian;
  ::kill(guardian.process.pid(), SIGSTOP);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(guardian.process.pid()), &info, WSTOPPED | __WALL) == 0);
  guardian.process.close();
  CHECK(guardian.ended());
  CHECK(guardian.process.reap() == 0);
}

TEST_CASE("a guardian that reads nothing is killed, and does not block the agent") {
  Started guardian;
  ::kill(guardian.process.pid(), SIGSTOP);
  const auto ended = [&] { return guardian.process.wait_for_end(Deadline::in(std::chrono::seconds(0))); };
  constexpr int more_than_a_pipe_holds = 200'000;
  for (pid_t group = 1'000'000; group < 1'000'000 + more_than_a_pipe_holds && !ended(); ++group)
    guardian.process.send(GuardianRecord::Command::remove_group, {&group, 1});
  CHECK(guardian.ended());
  CHECK(guardian.process.reap() == SIGKILL);
}

TEST_CASE("the signal that ended a guardian is known also when another wait has reaped it") {
  Started guardian;
  ::kill(guardian.process.pid(), SIGKILL);
  REQUIRE(::waitpid(guardian.process.pid(), nullptr, __WALL) == guardian.process.pid());
  guardian.process.record_end(SIGKILL);
  CHECK(guardian.process.reap() == SIGKILL);
}

#include "worker/trainer/preemption.h"

#include <atomic>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "common/deadline.h"
#include "common/error.h"
#include "worker/comm/spawn.h"
#include "worker/trainer/config/train_config.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

bool receives(const PreemptionListener& listener, std::int64_t requests) {
  const auto deadline = Deadline::in(std::chrono::seconds(20));
  while (listener.requests() < requests && !deadline.expired()) std::this_thread::yield();
  return listener.requests() == requests;
}

bool blocked_here(int signal_number) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal_number) == 1;
}

// Blocks the signal, as a caller of this process may have done.
class BlockedBefore {
 public:
  explicit BlockedBefore(int signal_number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~BlockedBefore() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedBefore(const BlockedBefore&) = delete;
  BlockedBefore& operator=(const BlockedBefore&) = delete;

 private:
  sigset_t before_;
};

// Returns the answer of a forked child; it ends without the destructors of this process.
template <class Question>
bool asked_in_child(Question question) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(question() ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("a preemption request is remembered by the listener that received it and does not end the process") {
  {
    const PreemptionListener listener("USR2");
    CHECK_FALSE(listener.requested());
    ::kill(::getpid(), SIGUSR2);
    CHECK(receives(listener, 1));
    CHECK(listener.requested());
  }
  const PreemptionListener another("USR2");
  CHECK_FALSE(another.requested());
}

TEST_CASE("a listener installs no signal handler, and its signal is blocked in every thread") {
  const PreemptionListener listener("USR1");
  struct sigaction action {};
  REQUIRE(::sigaction(SIGUSR1, nullptr, &action) == 0);
  CHECK(action.sa_handler == SIG_DFL);
  CHECK(blocked_here(SIGUSR1));
  bool blocked_in_thread = false;
  std::thread([&] { blocked_in_thread = blocked_here(SIGUSR1); }).join();
  CHECK(blocked_in_thread);
}

TEST_CASE("the end of a listener discards pending requests and restores the signal mask") {
  {
    const PreemptionListener listener("USR1");
    ::pthread_kill(::pthread_self(), SIGUSR1);  // only to this thread, so it stays pending
  }
  CHECK_FALSE(blocked_here(SIGUSR1));  // and the process has survived it
  const BlockedBefore blocked(SIGUSR1);
  { const PreemptionListener listener("USR1"); }
  CHECK(blocked_here(SIGUSR1));
}

TEST_CASE("a listener receives a signal that the process ignores") {
  std::signal(SIGUSR1, SIG_IGN);  // as a parent may have left it
  {
    const PreemptionListener listener("USR1");
    ::kill(::getpid(), SIGUSR1);
    CHECK(receives(listener, 1));
  }
  CHECK(std::signal(SIGUSR1, SIG_DFL) == SIG_IGN);
}

TEST_CASE("none receives no signal") {
  const PreemptionListener listener("none");
  CHECK_FALSE(listener.requested());
  CHECK_FALSE(blocked_here(SIGUSR1));
}

TEST_CASE("a thread that does not block the signal is refused by name, and the mask is as it was") {
  std::atomic<bool> runs{false};  // glibc starts a thread with all signals blocked
  std::atomic<bool> ends{false};
  std::thread thread([&] {
    ::pthread_setname_np(::pthread_self(), "early");
    runs = true;
    runs.notify_one();
    ends.wait(false);
  });
  runs.wait(false);
  std::string message;
  try {
    const PreemptionListener listener("USR1");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::usage);
    message = error.what();
  }
  CHECK_FALSE(blocked_here(SIGUSR1));
  ends = true;
  ends.notify_one();
  thread.join();
  CHECK_THAT(message, Catch::Contains("SIGUSR1") && Catch::Contains("(early)"));
}

TEST_CASE("a child process gets the original signal mask back") {
  {
    const PreemptionListener listener("TERM");
    CHECK(asked_in_child([] { return !blocked_here(SIGTERM); }));
    CHECK(blocked_here(SIGTERM));
  }
  const BlockedBefore blocked(SIGTERM);
  CHECK(asked_in_child([] { return blocked_here(SIGTERM); }));  // without a listener a mask is inherited
  const PreemptionListener listener("TERM");
  CHECK(asked_in_child([] { return blocked_here(SIGTERM); }));  // the original mask has it
}

TEST_CASE("spawned ranks listen each for itself") {
  spawn(2, [](const WorkerEnv&) {
    if (blocked_here(SIGUSR1)) throw Error(Errc::internal, "the rank did not start with the original mask");
    const PreemptionListener listener("USR1");
    ::kill(::getpid(), SIGUSR1);
    if (!receives(listener, 1)) throw Error(Errc::internal, "the rank did not receive its request");
  });
  CHECK_FALSE(blocked_here(SIGUSR1));
}

TEST_CASE("a signal that cannot request preemption is refused, and the choice decides no bits") {
  CHECK_THROWS_AS(PreemptionListener("KILL"), Error);
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  CHECK_THROWS_WITH(settings.assign("train.preempt_signal", "KILL", {Origin::command_line, "here"}),
                    Catch::Contains("USR1"));
  CHECK_FALSE(settings_that_decide(settings).contains("train.preempt_signal"));
}

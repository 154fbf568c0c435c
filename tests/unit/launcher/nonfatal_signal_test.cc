#include "launcher/workers/nonfatal_signal.h"

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace ddprun;

namespace {

ThreadSignals blocking(const char* mask, const char* state) {
  return parse_thread_signals(std::string("Name:\tx\nState:\t") + state + "\nSigBlk:\t" + mask + "\n");
}

const ThreadSignals plain = blocking("0000000000000000", "S (sleeping)");
const auto* const usr1 = "0000000000000200";
const auto* const all = "fffffffe7ffbfeff";  // the mask of sigfillset

}  // namespace

TEST_CASE("a signal that a process catches, ignores or blocks is not fatal") {
  const std::vector<ThreadSignals> threads{parse_thread_signals(
      "Name:\tpython3\nSigPnd:\t0000000000000000\nSigBlk:\t0000000000000800\nSigIgn:\t0000000000001000\n"
      "SigCgt:\t0000000000000202\nCapInh:\tffffffffffffffff\n")};
  CHECK(is_nonfatal(threads, SIGUSR1));  // caught
  CHECK(is_nonfatal(threads, SIGUSR2));  // blocked
  CHECK(is_nonfatal(threads, SIGPIPE));  // ignored
  CHECK_FALSE(is_nonfatal(threads, SIGTERM));
  CHECK_FALSE(is_nonfatal({parse_thread_signals("")}, SIGUSR1));
  CHECK_FALSE(is_nonfatal({parse_thread_signals("\nSigCgt:")}, SIGUSR1));
  CHECK_FALSE(is_nonfatal({}, SIGUSR1));
}

TEST_CASE("a signal that only one of the threads blocks is fatal") {
  CHECK(is_nonfatal({blocking(usr1, "S"), blocking(usr1, "R")}, SIGUSR1));
  CHECK_FALSE(is_nonfatal({blocking(usr1, "S"), plain}, SIGUSR1));
}

TEST_CASE("a thread that blocks all signals waits for them if it sleeps, and is forking otherwise") {
  REQUIRE(blocking(all, "R").blocks_all());
  REQUIRE_FALSE(blocking(usr1, "R").blocks_all());
  CHECK_FALSE(is_nonfatal({blocking(all, "R (running)")}, SIGUSR1));
  CHECK_FALSE(is_nonfatal({blocking(all, "D (disk sleep)")}, SIGUSR1));  // it is a vfork before the exec of the child
  CHECK(is_nonfatal({blocking(all, "S (sleeping)")}, SIGUSR1));
  CHECK(is_nonfatal({blocking(all, "R (running)"), blocking(all, "S (sleeping)")}, SIGUSR1));
}

#include "ddprun/launcher/workers/notice.h"

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
const auto* const all = "fffffffe7ffbfeff";  // sigfillset

}  // namespace

TEST_CASE("a process survives a signal that it catches, ignores or blocks") {
  const std::vector<ThreadSignals> threads{parse_thread_signals(
      "Name:\tpython3\nSigPnd:\t0000000000000000\nSigBlk:\t0000000000000800\nSigIgn:\t0000000000001000\n"
      "SigCgt:\t0000000000000202\nCapInh:\tffffffffffffffff\n")};
  CHECK(survives(threads, SIGUSR1));  // caught
  CHECK(survives(threads, SIGUSR2));  // blocked
  CHECK(survives(threads, SIGPIPE));  // ignored
  CHECK_FALSE(survives(threads, SIGTERM));
  CHECK_FALSE(survives({parse_thread_signals("")}, SIGUSR1));
  CHECK_FALSE(survives({parse_thread_signals("\nSigCgt:")}, SIGUSR1));
  CHECK_FALSE(survives({}, SIGUSR1));
}

TEST_CASE("a signal that one thread blocks ends a process of which another does not") {
  CHECK(survives({blocking(usr1, "S"), blocking(usr1, "R")}, SIGUSR1));
  CHECK_FALSE(survives({blocking(usr1, "S"), plain}, SIGUSR1));
}

TEST_CASE("who blocks all signals while it forks waits for none, who sleeps with them all blocked does") {
  REQUIRE(blocking(all, "R").blocks_all());
  REQUIRE_FALSE(blocking(usr1, "R").blocks_all());
  CHECK_FALSE(survives({blocking(all, "R (running)")}, SIGUSR1));
  CHECK_FALSE(survives({blocking(all, "D (disk sleep)")}, SIGUSR1));  // a vfork whose child has not come up yet
  CHECK(survives({blocking(all, "S (sleeping)")}, SIGUSR1));
  CHECK(survives({blocking(all, "R (running)"), blocking(all, "S (sleeping)")}, SIGUSR1));
}

#include "ddprun/launcher/workers/notice.h"

#include <csignal>

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a process survives a signal that it catches, ignores or blocks") {
  const auto masks = parse_signal_masks(
      "Name:\tpython3\nSigPnd:\t0000000000000000\nSigBlk:\t0000000000000800\nSigIgn:\t0000000000001000\n"
      "SigCgt:\t0000000000000202\nCapInh:\tffffffffffffffff\n");
  CHECK(masks.survives(SIGUSR1));  // caught
  CHECK(masks.survives(SIGUSR2));  // blocked
  CHECK(masks.survives(SIGPIPE));  // ignored
  CHECK_FALSE(masks.survives(SIGTERM));
  CHECK_FALSE(parse_signal_masks("").survives(SIGUSR1));
  CHECK_FALSE(parse_signal_masks("\nSigCgt:").survives(SIGUSR1));
}

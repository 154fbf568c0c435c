#include <regex>

#include "tests/process/launch.h"
#include "tests/support/catch.h"

// Workers in uninterruptible sleep, with --uninterruptible_timeout and torchrun's variable for it.
using namespace ddprun::testing;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Words one_sleeps{"if-rank=1", "sleep-in-kernel", "end-if", "pause"};

}  // namespace

TEST_CASE("a worker that stays in uninterruptible sleep fails the job, which names rank, thread and duration") {
  const Marker marker;
  const auto result =
      run_child(command(two_workers({"--uninterruptible_timeout=0.2"}), one_sleeps), marker.variables());
  CHECK(result.code == 1);
  CHECK(contains(result.err, "rank 1 "));
  CHECK(std::regex_search(result.err, std::regex(" has been in uninterruptible sleep for [0-9]+\\.[0-9] s")));
  CHECK(contains(result.err, ": a file system or a device does not answer"));
  CHECK(marker.processes() == 0);
}

TEST_CASE("the limit of uninterruptible sleep also comes from torchrun's variable, and the job is restarted") {
  const auto result = run_child(
      command(two_workers({"--max_restarts=1"}), {"if-attempt=0", "if-rank=1", "sleep-in-kernel", "end-if", "end-if",
                                                  "if-attempt=0", "pause", "end-if", "out=again\\n"}),
      {{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "0.2"}});
  CHECK(result.code == 0);
  CHECK(contains(result.err, " has been in uninterruptible sleep for "));
  CHECK(contains(result.out, "[default1]:again\n"));
}

TEST_CASE("without a limit a worker in uninterruptible sleep is left alone") {
  const Marker marker;
  Child child(command(two_workers(), {"if-rank=1", "out=begun\\n", "sleep-in-kernel", "end-if", "pause"}),
              marker.variables());
  // Before it has begun, a process in state D may be one that reads its program from the disk.
  child.wait_until([&] { return contains(child.out(), "begun") && marker.processes('D') == 1; }, "the sleep");
  child.signal(SIGTERM);
  CHECK(child.wait().code == 128 + SIGTERM);
  CHECK_FALSE(contains(child.err(), "uninterruptible"));
}

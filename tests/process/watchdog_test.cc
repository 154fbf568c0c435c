#include <csignal>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// torchrun's watchdog pipe, with workers that have let a timer pass.
using namespace ddprun::testing;

namespace {

const Variables enabled{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a worker whose timer expires is killed, and the agent lives to say so and to start it again") {
  const auto result = run_child(
      command(two_workers({"--max_restarts=1"}), {"if-attempt=0", "if-rank=1", "timer=step", "pause"}), enabled);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "[ddprun] error: the timer 'step' of process "));
  CHECK(contains(result.err, " expired (local rank 1): sending it SIGKILL\n"));
}

TEST_CASE("without a restart left, the exit code tells of the signal") {
  const auto result = run_child(command(two_workers(), {"if-rank=0", "timer=step", "end-if", "pause"}), enabled);
  CHECK(result.code == 128 + SIGKILL);
}

TEST_CASE("a timer that names a process of somebody else's kills nobody") {
  Child stranger({"/bin/sleep", "1000"});
  const auto result = run_child(command(two_workers(), {"if-rank=0", "timer-of=" + std::to_string(stranger.pid()),
                                                        "timer=own", "end-if", "pause"}),
                                enabled);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(contains(result.err, "the timer 'foreign' of process " + std::to_string(stranger.pid()) +
                                 " expired: it is none of this node's workers, nothing is sent\n"));
  CHECK(::waitpid(stranger.pid(), nullptr, WNOHANG) == 0);  // it runs
}

TEST_CASE("the watchdog's pipe is there when it is asked for, under the name that was given, and is removed") {
  const TempDir folder;
  const auto pipe = (folder / "pipe").string();
  auto variables = enabled;
  variables["TORCHELASTIC_TIMER_FILE"] = pipe;
  const auto result = run_child(command({}, {"env"}), variables);
  CHECK(contains(result.out, "TORCHELASTIC_TIMER_FILE=" + pipe + "\n"));
  CHECK_FALSE(std::filesystem::exists(pipe));
  CHECK(contains(run_child(command({}, {"env"}), enabled).out, "TORCHELASTIC_TIMER_FILE=/"));
  CHECK_FALSE(contains(run_child(command({}, {"env"})).out, "TORCHELASTIC_TIMER_FILE"));
}

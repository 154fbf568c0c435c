#include <csignal>

#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

// torchrun's watchdog pipe, with workers whose timer expires.
using namespace ddprun::testing;

namespace {

const Variables enabled{{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a worker whose timer expires is killed, and the agent reports and restarts it") {
  const auto result = run_child(
      command(two_workers({"--max_restarts=1"}), {"if-attempt=0", "if-rank=1", "timer=step", "pause"}), enabled);
  CHECK(result.code == 0);
  CHECK(contains(result.err, "[ddprun] error: the timer 'step' of process "));
  CHECK(contains(result.err, " expired (local rank 1): sending it SIGKILL\n"));
}

TEST_CASE("without a restart left the exit code is that of the signal, and the report names the timer") {
  const auto result = run_child(command(two_workers(), {"if-rank=0", "timer=step", "end-if", "pause"}), enabled);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(contains(result.err, " failed: its watchdog timer 'step' expired, and ddprun sent it SIGKILL\n"));
  CHECK(contains(result.err, ": its watchdog timer 'step' expired, and ddprun sent it SIGKILL\n==="));
  CHECK_FALSE(contains(result.err, "another process sent it"));
}

TEST_CASE("a timer that names a foreign process sends no signal") {
  Child stranger({"/bin/sleep", "1000"});
  const auto result = run_child(command(two_workers(), {"if-rank=0", "timer-of=" + std::to_string(stranger.pid()),
                                                        "timer=own", "end-if", "pause"}),
                                enabled);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(contains(result.err, "the timer 'foreign' of process " + std::to_string(stranger.pid()) +
                                 " expired: the process is not one of this node's workers, no signal is sent\n"));
  CHECK(::waitpid(stranger.pid(), nullptr, WNOHANG) == 0);  // it runs
}

TEST_CASE("the watchdog's pipe exists when it is enabled, has the given name, and is removed") {
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

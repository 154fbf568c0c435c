// Twenty kills of ranks of the example: it loses no step, and has the losses of a run without kills.
#include <csignal>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/processes.h"

using namespace ddprun::testing;

namespace {

constexpr int ranks = 3, kills = 20;
constexpr std::chrono::seconds bound(200);

std::vector<std::string> job(const std::string& steps) {
  return {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=3", "--max_restarts=20", EXAMPLE, steps};
}

// Returns the process of a rank of the job; 0 if there is none.
pid_t process_of(const std::string& marker, int rank) {
  const auto variable = std::string(1, '\0') + "RANK=" + std::to_string(rank) + std::string(1, '\0');
  for (const pid_t pid : processes_with(marker))
    if ((std::string(1, '\0') + proc_text(std::to_string(pid), "environ")).find(variable) != std::string::npos)
      return pid;
  return 0;
}

int lines_of(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_of('\n');
  return text.substr(text.rfind("step ", end), end - text.rfind("step ", end));
}

}  // namespace

TEST_CASE(
    "twenty kills of random ranks of a program of the user: the same losses, and the others keep their processes") {
  const auto value = std::to_string(::getpid()), marker = "RECOVERY_EXAMPLE_TEST=" + value;
  Child child(job("1000000"), {{"OMP_NUM_THREADS", "1"}, {"RECOVERY_EXAMPLE_TEST", value}});
  const auto wait_for_steps = [&] {
    const int seen = lines_of(child.out());
    child.wait_until([&] { return lines_of(child.out()) > seen + 10; }, "steps", bound);
  };
  std::minstd_rand random(7);
  for (int i = 0; i < kills; ++i) {
    wait_for_steps();
    const int rank = static_cast<int>(random() % ranks);
    const pid_t killed = process_of(marker, rank), other = process_of(marker, (rank + 1) % ranks);
    REQUIRE(killed > 0);
    REQUIRE(::kill(killed, SIGKILL) == 0);
    const auto replaced = [&] {
      const pid_t now = process_of(marker, rank);
      return now > 0 && now != killed;
    };
    child.wait_until(replaced, "a replacement", bound);
    CHECK(process_of(marker, (rank + 1) % ranks) == other);
  }
  wait_for_steps();
  const auto line = last_line(child.out());
  child.signal(SIGTERM);
  CHECK(child.wait(bound).err.find("new round") == std::string::npos);

  const auto words = line.substr(line.find(' ') + 1);
  const auto expected = Child(job(words.substr(0, words.find(' '))), {{"OMP_NUM_THREADS", "1"}}).wait(bound);
  CHECK(expected.code == 0);
  CHECK(last_line(expected.out) == line);
}

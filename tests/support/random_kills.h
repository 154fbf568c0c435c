#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/processes.h"

// Kills of random ranks of a program of a user whose ranks recover.
namespace ddprun::testing {

// A job of such a program, whose rank 0 prints a line for each step: "step NUMBER  loss LOSS".
struct RecoveringJob {
  std::function<std::vector<std::string>(const std::string& steps)> command;
  std::map<std::string, std::string> variables = {};
  int ranks = 3;
  std::chrono::seconds bound{200};  // of each wait
};

namespace random_kills {

// Returns the process of each rank of the job with this variable in its environment; 0 where there is none.
inline std::vector<pid_t> processes_of_ranks(const std::string& variable, int ranks) {
  std::vector<pid_t> found(static_cast<std::size_t>(ranks));
  for (const pid_t pid : processes_with(variable)) {
    const auto environment = std::string(1, '\0') + proc_text(std::to_string(pid), "environ");
    for (std::size_t rank = 0; rank < found.size(); ++rank)
      if (environment.find('\0' + ("RANK=" + std::to_string(rank)) + '\0') != std::string::npos) found[rank] = pid;
  }
  return found;
}

inline std::string last_line(const std::string& text) {
  const auto end = text.find_last_of('\n');
  const auto begin = text.rfind("step ", end);
  return text.substr(begin, end - begin);
}

}  // namespace random_kills

// Checks that a job trains on after each of so many kills of random ranks, which are replaced alone while the others
// keep their processes, and that its loss is then that of a run of as many steps without kills.
inline void check_survives_kills(const RecoveringJob& job, int kills) {
  const auto value = std::to_string(::getpid()), marker = "RANDOM_KILLS=" + value;
  auto variables = job.variables;
  variables["RANDOM_KILLS"] = value;
  Child child(job.command("1000000"), variables);
  const auto lines = [&] { return std::ranges::count(child.out(), '\n'); };
  const auto wait_for_steps = [&] {
    const auto seen = lines();
    child.wait_until([&] { return lines() > seen + 10; }, "steps", job.bound);
  };
  std::minstd_rand random(7);
  for (int i = 0; i < kills; ++i) {
    wait_for_steps();
    auto expected = random_kills::processes_of_ranks(marker, job.ranks);
    REQUIRE(std::ranges::count(expected, 0) == 0);
    const auto victim = random() % expected.size();
    REQUIRE(::kill(expected[victim], SIGKILL) == 0);
    std::vector<pid_t> now;
    const auto is_replaced = [&] {
      now = random_kills::processes_of_ranks(marker, job.ranks);
      return now[victim] > 0 && now[victim] != expected[victim];
    };
    child.wait_until(is_replaced, "a replacement", job.bound);
    expected[victim] = now[victim];
    CHECK(now == expected);
  }
  wait_for_steps();
  const auto line = random_kills::last_line(child.out());
  child.signal(SIGTERM);
  CHECK(child.wait(job.bound).err.find("new round") == std::string::npos);

  const auto words = line.substr(line.find(' ') + 1);
  const auto undisturbed = Child(job.command(words.substr(0, words.find(' '))), job.variables).wait(job.bound);
  INFO(undisturbed.err);
  CHECK(undisturbed.code == 0);
  CHECK(random_kills::last_line(undisturbed.out) == line);
}

}  // namespace ddprun::testing

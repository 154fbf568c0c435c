// Twenty kills of ranks of the example: it loses no step, and has the losses of a run without kills.
#include "tests/support/random_kills.h"

using namespace ddprun::testing;

TEST_CASE(
    "twenty kills of random ranks of a program of the user: the same losses, and the others keep their processes") {
  const auto command = [](const std::string& steps) -> std::vector<std::string> {
    return {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=3", "--max_restarts=20", EXAMPLE, steps};
  };
  check_survives_kills({.command = command, .variables = {{"OMP_NUM_THREADS", "1"}}}, 20);
}

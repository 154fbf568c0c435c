#include "launcher/workers/standby.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a process stands by only where it could be the worker of any local rank") {
  const WorkerCommand command{.executable = "/bin/w", .arguments = {"w", "train.cfg"}, .title = "w"};
  const WorkerEnvSpec exported{.omp_threads = {2, 2}, .recovery = 0};
  CHECK(suits_all_workers(command, exported, {}));
  CHECK(suits_all_workers(command, {.recovery = 0}, {}));

  CHECK_FALSE(suits_all_workers(command, {}, {}));  // single workers are not replaced
  CHECK_FALSE(suits_all_workers(command, {.omp_threads = {2, 1}, .recovery = 0}, {}));
  CHECK_FALSE(suits_all_workers(command, {.virtual_local_rank = true, .recovery = 0}, {}));
  CHECK_FALSE(suits_all_workers(command, {.pmi = true, .recovery = 0}, {}));
}

TEST_CASE("no process stands by for workers whose arguments have their local rank") {
  const WorkerEnvSpec exported{.recovery = 0};
  const WorkerCommand command{.executable = "/bin/w", .arguments = {"w", "--log=${local_rank}"}, .title = "w"};
  CHECK_FALSE(suits_all_workers(command, exported, {}));
}

TEST_CASE("no process stands by where OpenMP binds its threads to processors at its start") {
  const WorkerCommand command{.executable = "/bin/w", .arguments = {"w"}, .title = "w"};
  Environment agent;
  agent.set("OMP_PROC_BIND", "close");
  CHECK_FALSE(suits_all_workers(command, {.recovery = 0}, agent));
}

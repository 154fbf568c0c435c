// Ranks that meet in an allreduce, but for one that stays in its own code until there is a file of the name given.
//   straggler RANK FILE
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/worker/comm/init.h"

using namespace ddprun;

int main(int, char** argv) try {
  const auto env = WorkerEnv::from(Environment::capture());
  const auto world = init_process_group({.freeze_bound = std::chrono::milliseconds(0), .env = env});
  world->group().barrier()->wait();
  if (env.rank == std::atoi(argv[1]))
    while (::access(argv[2], F_OK) != 0) ::usleep(2000);
  std::vector<float> values(1000, 1.0f);
  world->group().allreduce(span_of(values))->wait();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

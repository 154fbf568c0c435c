// Looks for a key of an earlier attempt in the workers' store, then sets one, and fails in the first attempt.
#include <cstdio>
#include <cstdlib>

#include "common/environment.h"
#include "worker/comm/init.h"

using namespace ddprun;

int main() try {
  const auto env = WorkerEnv::from(Environment::capture());
  const auto world = init_process_group({.env = env});
  const bool stale = world->store().check({"left by rank 0"}, Deadline::in(std::chrono::seconds(30)));
  world->group().barrier()->wait();
  if (env.rank == 0) {
    std::printf("attempt %d: %s key\n", env.restart_count, stale ? "a stale" : "no stale");
    std::fflush(stdout);
    world->store().set("left by rank 0", "1", Deadline::in(std::chrono::seconds(30)));
  }
  world->group().barrier()->wait();
  if (env.restart_count == 0) std::_Exit(3);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// A user's own program, linked with the installed library: sums the ranks (from 1) of its job.
#include <cstdio>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/worker/comm/init.h"

int main() {
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());
  const auto world = ddprun::init_process_group({.env = env});
  std::vector<float> value{static_cast<float>(env.rank + 1)};
  world->group().allreduce(ddprun::span_of(value), ddprun::ReduceOp::sum)->wait();
  if (env.rank == 0) std::printf("sum over %d ranks: %g\n", env.world_size, value[0]);
}

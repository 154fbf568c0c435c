#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/comm/init.h"

int main() try {
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());
  const auto world = ddprun::init_process_group({.backend = "auto", .env = env});
  auto& group = world->group();

  // Two operations in flight while this thread does something else.
  std::vector<float> gradients(1'000'000, 1.0f), loss{0.5f * static_cast<float>(env.rank)};
  const auto sum = group.allreduce(ddprun::span_of(gradients));
  const auto mean = group.allreduce(ddprun::span_of(loss), ddprun::ReduceOp::average);
  sum->wait();
  mean->wait();

  // Small and needed at once: the calling thread executes it.
  std::vector<std::int64_t> own{env.rank}, all(static_cast<std::size_t>(group.size()));
  group.allgather(ddprun::span_of(own), ddprun::span_of(all), {.blocking = true});

  if (env.rank == 0) {
    std::printf("%s: %g ranks, mean loss %g, last rank %lld\n", std::string(group.backend()).c_str(),
                static_cast<double>(gradients[0]), static_cast<double>(loss[0]), static_cast<long long>(all.back()));
  }
} catch (const ddprun::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());  // "rank 3 (pid 71 on host b) has died", say
  return 1;
}

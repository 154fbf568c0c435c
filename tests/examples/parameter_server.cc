// A parameter server: process 0 has the parameters, the others fetch them and bring gradients, at their own pace.
#include "ddprun/worker/parallel/forms/parameter_server/parameter_server.h"

#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/sharding/parameter_shards.h"

using namespace ddprun;

int main() try {
  const WorkerEnv env = WorkerEnv::from(Environment::capture());  // as ddprun sets it
  const auto world = init_process_group({.env = env});
  Generator weights(1), samples(2, static_cast<unsigned>(env.rank));  // each rank has its own samples
  const auto truth = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {16}}, weights);
  const auto model = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {32}}, weights);
  ParameterServer server(*model, world->group(), {.servers = 1, .staleness = 4});
  std::unique_ptr<optim::Optimizer> optimizer;  // the server's
  if (server.is_server())
    optimizer = optim::make_optimizer("adam", {.lr = 0.01}, ParameterShards(server.sharded_buckets()).parameters());
  const auto compute = [&](std::int64_t ticket) {  // on a worker: the gradient of one update
    Tensor inputs = Tensor::empty({32, 8});
    fill_normal(inputs, 0, 1, samples);
    const Variable loss = mse_loss((*model)(Variable(inputs)), (*truth)(Variable(inputs)).value());
    loss.backward();
    if (ticket == 0) std::printf("loss %.6f\n", loss.value().item());
  };
  for (int round = 0; round < 5; ++round) server.round(50, compute, [&] { optimizer->step(); });
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

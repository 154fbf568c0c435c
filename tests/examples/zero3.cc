// ZeRO stage 3: each process keeps a part of parameters, gradients and the optimizer's state. A layer's parameters are
// gathered for its forward and its backward pass.
#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/data/zero/sharded_data_parallel.h"
#include "ddprun/worker/parallel/sharding/parameter_shards.h"

using namespace ddprun;

int main() try {
  const WorkerEnv env = WorkerEnv::from(Environment::capture());  // as ddprun sets it
  const auto world = init_process_group({.env = env});
  Generator weights(1), samples(2, static_cast<unsigned>(env.rank));  // each rank has its own samples
  const auto truth = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {16}}, weights);
  const auto model = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {32}}, weights);
  ShardedDataParallel sharded(*model, world->group(), {.shard_parameters = true});
  const ParameterShards shards(*sharded.sharded_buckets());
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, shards.parameters());
  for (int step = 0; step <= 200; ++step) {
    Tensor inputs = Tensor::empty({32, 8});
    fill_normal(inputs, 0, 1, samples);
    const Variable loss = mse_loss(sharded.forward(Variable(inputs)), (*truth)(Variable(inputs)).value());
    sharded.zero_grad();
    loss.backward();
    optimizer->step();
    sharded.parameters_updated();
    if (env.rank == 0 && step % 50 == 0) std::printf("step %3d  loss %.6f\n", step, loss.value().item());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// Distributed data parallelism: each process has a replica of the model, and gradients are averaged.
#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/data/distributed_data_parallel.h"

using namespace ddprun;

int main() try {
  const WorkerEnv env = WorkerEnv::from(Environment::capture());  // as ddprun sets it
  const auto world = init_process_group({.env = env});
  Generator weights(1), samples(2, static_cast<unsigned>(env.rank));  // each rank has its own samples
  const auto truth = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {16}}, weights);
  const auto model = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {32}}, weights);
  DistributedDataParallel ddp(*model, world->group());
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, model->named_parameters());
  for (int step = 0; step <= 200; ++step) {
    Tensor inputs = Tensor::empty({32, 8});
    fill_normal(inputs, 0, 1, samples);
    const Variable loss = mse_loss(ddp.forward(Variable(inputs)), (*truth)(Variable(inputs)).value());
    optimizer->zero_grad();
    loss.backward();  // the average goes on beside it
    optimizer->step();
    if (env.rank == 0 && step % 50 == 0) std::printf("step %3d  loss %.6f\n", step, loss.value().item());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

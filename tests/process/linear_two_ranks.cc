// The smallest complete program: two processes fit a linear model to random tensors.
#include <cstdio>
#include <exception>

#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/comm/spawn.h"
#include "ddprun/worker/nn/layers.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/data/distributed_data_parallel.h"

using namespace ddprun;

int main() try {
  spawn(2, [](const WorkerEnv& env) {
    const auto world = init_process_group({.env = env});
    Generator weights(1), samples(2, static_cast<unsigned>(env.rank));  // each rank has its own samples
    nn::Linear truth(8, 1, weights), model(8, 1, weights);
    DistributedDataParallel ddp(model, world->group());
    const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, model.named_parameters());
    for (int step = 0; step <= 100; ++step) {
      Tensor inputs = Tensor::empty({32, 8});
      fill_normal(inputs, 0, 1, samples);
      const Variable loss = mse_loss(ddp.forward(Variable(inputs)), truth(Variable(inputs)).value());
      optimizer->zero_grad();
      loss.backward();  // averages the gradients of both ranks at the same time
      optimizer->step();
      if (env.rank == 0 && step % 20 == 0) std::printf("step %3d  loss %.6f\n", step, loss.value().item());
    }
  });
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

// The smallest program: two processes of this machine fit a linear model of libtorch.
#include <cstdio>
#include <torch/torch.h>

#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/comm/spawn.h"
#include "ddprun/worker/libtorch/distributed_data_parallel.h"

int main() {
  ddprun::spawn(2, [](const ddprun::WorkerEnv& env) {
    const auto world = ddprun::init_process_group({.env = env});
    torch::manual_seed(1);
    torch::nn::Linear truth(8, 1), net(8, 1);
    ddprun::torch::DistributedDataParallel ddp(net, world->group());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    torch::manual_seed(env.rank);  // each rank has its own samples
    for (int step = 0; step <= 100; ++step) {
      const auto inputs = torch::randn({32, 8});
      const auto loss = torch::mse_loss(ddp(inputs), truth(inputs).detach());
      optimizer.zero_grad();
      loss.backward();  // averages the gradients of both ranks at the same time
      optimizer.step();
      if (env.rank == 0 && step % 20 == 0) std::printf("step %3d  loss %.6f\n", step, loss.item<double>());
    }
  });
}

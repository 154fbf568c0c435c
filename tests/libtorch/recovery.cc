// Ranks that are lost, and replaced by ddprun --max_restarts: the others keep their processes, and no step is lost.
#include "ddprun/worker/recovery/recovery.h"

#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <torch/torch.h>
#include <utility>

#include "ddprun/common/environment.h"
#include "ddprun/worker/comm/collectives.h"
#include "ddprun/worker/comm/error_file.h"
#include "ddprun/worker/libtorch/distributed_data_parallel.h"

int main(int argc, char** argv) try {
  long step = 0, steps = argc > 1 ? std::stol(argv[1]) : 200;
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());  // as ddprun sets it
  ddprun::Recovery recovery({.env = env}, std::chrono::seconds(60));
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  const auto copy_state = [&](ddprun::ProcessGroup& group, const ddprun::Catchup& from, bool receives) {
    const auto copy = [&](auto& object) {
      std::stringstream bytes;
      if (group.rank() == from.source) torch::save(object, bytes);
      bytes.str(ddprun::broadcast_bytes(group, bytes.str(), from.source));
      if (receives) torch::load(object, bytes);
    };
    copy(net), copy(optimizer);
    return step = from.step;
  };
  ddprun::ProcessGroup* group = recovery.is_replacement() ? nullptr : &recovery.form_first();
  recovery.announce();
  for (std::string reason = "it joins"; step < steps;) try {
      if (!group) {
        const auto resumed = recovery.recover(reason, copy_state);
        if (!resumed) return 0;  // the others are done
        group = &resumed->group;
      }
      ddprun::torch::DistributedDataParallel ddp(net, *std::exchange(group, nullptr));
      while (step < steps) {
        torch::manual_seed(step * env.world_size + env.rank);
        const auto inputs = torch::randn({32, 8});
        const auto loss = torch::mse_loss(ddp(inputs), inputs.narrow(1, 0, 2).sin());
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        recovery.on_applied(++step);
        if (env.rank == 0) std::printf("step %ld  loss %.9f\n", step, loss.item<double>());
        std::fflush(stdout);
      }
      recovery.finish();
    } catch (const ddprun::Error& error) {
      if (!ddprun::is_consequence(error.code()) || !recovery.is_able()) throw;
      reason = error.what();
    }
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}

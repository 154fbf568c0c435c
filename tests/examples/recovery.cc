// Ranks that are lost, and replaced by ddprun --max_restarts: the others keep their processes, and no step is lost.
#include "ddprun/worker/recovery/recovery.h"

#include <chrono>
#include <cstdio>
#include <string>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/error_file.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/data/distributed_data_parallel.h"
#include "ddprun/worker/parallel/group_tensors.h"

using namespace ddprun;

int main(int argc, char** argv) try {
  const long steps = argc > 1 ? std::stol(argv[1]) : 200;
  const WorkerEnv env = WorkerEnv::from(Environment::capture());  // as ddprun sets it
  Recovery recovery({.env = env}, std::chrono::seconds(60));
  Generator weights(1);
  const auto truth = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {16}}, weights);
  const auto model = nn::make_model("mlp", {.input = {8}, .outputs = 2, .hidden = {32}}, weights);
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, model->named_parameters());
  const auto copy_state = [&](ProcessGroup& group, const Catchup& from, bool) {
    broadcast(group, references(model->named_parameters()), from.source);
    broadcast(group, references(optimizer->state()), from.source);
    optimizer->set_step_count(from.step);
    return from.step;
  };
  ProcessGroup* group = recovery.is_replacement() ? nullptr : &recovery.form_first();
  recovery.announce();
  for (std::string reason = "it joins"; optimizer->step_count() < steps;) try {
      if (!group) {
        const auto resumed = recovery.recover(reason, copy_state);
        if (!resumed) return 0;  // the others are done
        group = &resumed->group;
      }
      DistributedDataParallel ddp(*model, *std::exchange(group, nullptr));
      while (optimizer->step_count() < steps) {
        Generator samples(2, static_cast<unsigned>(optimizer->step_count() * env.world_size + env.rank));
        Tensor inputs = Tensor::empty({32, 8});
        fill_normal(inputs, 0, 1, samples);
        const Variable loss = mse_loss(ddp.forward(Variable(inputs)), (*truth)(Variable(inputs)).value());
        optimizer->zero_grad();
        loss.backward();
        optimizer->step();
        recovery.on_applied(optimizer->step_count());
        if (env.rank == 0) std::printf("step %ld  loss %.9f\n", optimizer->step_count(), loss.value().item());
        std::fflush(stdout);
      }
      recovery.finish();
    } catch (const Error& error) {
      if (!is_consequence(error.code()) || !recovery.is_able()) throw;
      reason = error.what();
    }
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}

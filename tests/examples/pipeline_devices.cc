// A pipeline over two devices of a process, each with a thread; gradients are averaged over the processes.
#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/data/distributed_data_parallel.h"
#include "ddprun/worker/parallel/forms/pipeline/device_pipeline.h"
#include "ddprun/worker/parallel/forms/pipeline/stage.h"

using namespace ddprun;
using namespace ddprun::pipeline;

int main() try {
  const WorkerEnv env = WorkerEnv::from(Environment::capture());  // as ddprun sets it
  const auto world = init_process_group({.env = env});
  Generator weights(1), samples(2, static_cast<unsigned>(env.rank));  // each rank has its own samples
  const auto make = [&] { return nn::make_model("mlp", {.input = {6}, .outputs = 6, .hidden = {24}}, weights); };
  const auto model = make();
  constexpr int micro_batches = 4;
  const auto schedule = plan_schedule(ScheduleKind::zero_bubble, {.ranks = 2, .micro_batches = micro_batches});
  DistributedDataParallel ddp(*model, world->group());
  DevicePipeline pipeline(*model, make, {parse_device("cpu:0"), parse_device("cpu:1")}, schedule,
                          cuts_at(*model, {"fc2"}, 2));
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.02}, model->named_parameters());
  for (int step = 0; step <= 300; ++step) {
    Tensor inputs = Tensor::empty({4 * micro_batches, 6});
    fill_normal(inputs, 0, 1, samples);
    const auto part = [&](int m) { return inputs.slice(0, 4 * m, 4).contiguous(); };
    double sum = 0;
    const auto loss = [&](int m, const Variable& result) {
      const Variable error = mse_loss(result, part(m));  // an autoencoder
      sum += error.value().item() / micro_batches;
      return mul(error, 1.0 / micro_batches);
    };
    optimizer->zero_grad();
    {
      const auto local = ddp.hold_reduction();
      pipeline.train({.micro_batches = micro_batches,
                      .samples = [](int) { return std::int64_t{4}; },
                      .input = [&](int m) { return Variable(part(m)); },
                      .loss = loss});
    }
    ddp.join_pass();  // averages what the micro-batches have added up
    optimizer->step();
    if (env.rank == 0 && step % 100 == 0) std::printf("step %3d  loss %.6f\n", step, sum);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

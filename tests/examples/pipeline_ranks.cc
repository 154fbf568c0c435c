// A pipeline over processes: each has some layers of the model, through which a batch passes in micro-batches.
#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/pipeline/pipelined_data_parallel.h"
#include "ddprun/worker/parallel/mesh/device_mesh.h"

using namespace ddprun;
using namespace ddprun::pipeline;

namespace {

constexpr int micro_batches = 4;

// The inputs are the same at all ranks: the first stage reads the inputs, the last one the targets.
Tensor inputs_of(int step, int micro_batch) {
  Generator samples(2, static_cast<unsigned>(step * micro_batches + micro_batch));
  Tensor inputs = Tensor::empty({8, 6});
  fill_normal(inputs, 0, 1, samples);
  return inputs;
}

}  // namespace

int main() try {
  const WorkerEnv env = WorkerEnv::from(Environment::capture());  // as ddprun sets it
  const auto world = init_process_group({.env = env});
  const DeviceMesh mesh(world->group(), {{"pipeline", 2}, {"data", mesh_rest}});
  Generator weights(1);
  const auto model = nn::make_model("mlp", {.input = {6}, .outputs = 6, .hidden = {24}}, weights);
  const auto schedule =
      plan_schedule(ScheduleKind::one_forward_one_backward, {.ranks = 2, .micro_batches = micro_batches});
  PipelinedDataParallel pipelined(*model, mesh.group("pipeline"), mesh.group("data"), cuts_at(*model, {"fc2"}, 2),
                                  schedule);
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.02}, pipelined.pipeline().parameters());
  for (int step = 0; step <= 300; ++step) {
    double sum = 0;  // at the rank of the last stage
    const auto loss = [&](int m, const Variable& result) {
      const Variable error = mse_loss(result, inputs_of(step, m));  // an autoencoder
      sum += error.value().item() / micro_batches;
      return mul(error, 1.0 / micro_batches);
    };
    pipelined.zero_grad();
    pipelined.train({.micro_batches = micro_batches,
                     .samples = [](int) { return std::int64_t{8}; },
                     .input = [&](int m) { return Variable(inputs_of(step, m)); },
                     .loss = loss});
    optimizer->step();
    if (pipelined.pipeline().has_last_stage() && step % 100 == 0) std::printf("step %3d  loss %.6f\n", step, sum);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

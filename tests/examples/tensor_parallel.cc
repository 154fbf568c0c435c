// A mesh of data and tensor parallelism: two processes have the same samples of a GPT, and half of its heads, hidden
// units and vocabulary each. Any multiple of two processes will do: other pairs have other samples.
#include "ddprun/worker/parallel/forms/tensor/tensor_parallel.h"

#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/data/distributed_data_parallel.h"
#include "ddprun/worker/parallel/forms/tensor/cross_entropy.h"
#include "ddprun/worker/parallel/mesh/device_mesh.h"

using namespace ddprun;

namespace {

// Rows that count upwards from a random token: the next one is easy to learn.
Tensor rows_of_tokens(Generator& generator) {
  Tensor tokens = Tensor::empty({8, 17}, DType::int64);
  for (std::int64_t row = 0; row < 8; ++row) {
    const auto first = static_cast<std::int64_t>(generator.below(32));
    for (std::int64_t i = 0; i < 17; ++i) tokens.data<std::int64_t>()[row * 17 + i] = (first + i) % 32;
  }
  return tokens;
}

void train(const WorkerEnv& env) {
  const auto world = init_process_group({.env = env});
  const DeviceMesh mesh(world->group(), {{"data", mesh_rest}, {"tensor", 2}});
  nn::ModelOptions options{.input = {16}, .input_dtype = DType::int64, .outputs = 32};
  options.gpt = {.layers = 2, .heads = 4, .width = 32, .context = 16, .vocabulary = 32};
  Generator weights(1), samples(2, static_cast<unsigned>(mesh.coordinate("data")));  // a pair has the same samples
  const auto model = nn::make_model("gpt", options, weights);
  TensorParallel tensor(*model, tensor_plan("gpt", *model), mesh.group("tensor"));
  DistributedDataParallel ddp(*model, mesh.group("data"));
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.003}, model->named_parameters());
  for (int step = 0; step <= 100; ++step) {
    const Tensor tokens = rows_of_tokens(samples);
    const Variable scores = reshape(ddp.forward(Variable(tokens.slice(1, 0, 16).contiguous())), {8 * 16, -1});
    const Tensor targets = tokens.slice(1, 1, 16).contiguous().reshape({8 * 16});
    const Variable loss = vocabulary_parallel_cross_entropy(scores, targets, tensor.group());
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
    if (env.rank == 0 && step % 20 == 0) std::printf("step %3d  loss %.6f\n", step, loss.value().item());
  }
}

}  // namespace

int main() try { train(WorkerEnv::from(Environment::capture())); } catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

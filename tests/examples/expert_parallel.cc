// A mesh of data and expert parallelism: two processes divide the experts of a GPT, each has samples of its own, and
// tokens go to the process of their experts and back. Any multiple of two processes will do.
#include "ddprun/worker/parallel/forms/expert/expert_parallel.h"

#include <cstdio>
#include <exception>

#include "ddprun/common/environment.h"
#include "ddprun/worker/autograd/ops.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/nn/models.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/parallel/forms/expert/expert_data_parallel.h"
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
  const DeviceMesh mesh(world->group(), {{"data", mesh_rest}, {"expert", 2}});
  nn::ModelOptions options{.input = {16}, .input_dtype = DType::int64, .outputs = 32};
  options.gpt = {.layers = 2, .heads = 4, .width = 32, .context = 16, .vocabulary = 32};
  options.experts = {.experts = 4, .per_token = 2};
  Generator weights(1), samples(2, static_cast<unsigned>(env.rank));
  const auto model = nn::make_model("gpt", options, weights);
  ExpertParallel experts(*model, mesh.group("expert"), mesh.all());
  ExpertDataParallel ddp(*model, *experts.shards(), mesh.group("data"), mesh.all());
  const auto optimizer = optim::make_optimizer("adam", {.lr = 0.003}, model->named_parameters());
  for (int step = 0; step <= 100; ++step) {
    const Tensor tokens = rows_of_tokens(samples);
    const Variable scores = ddp.forward(Variable(tokens.slice(1, 0, 16).contiguous()));
    const Tensor targets = tokens.slice(1, 1, 16).contiguous().reshape({-1});
    const Variable loss = cross_entropy(reshape(scores, {-1, 32}), targets);
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

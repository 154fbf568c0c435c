// Checks, by a rank itself, of DistributedDataParallel in passes that are not all alike. Run with 2 ranks.
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <torch/torch.h>

#include "ddprun/common/environment.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/libtorch/distributed_data_parallel.h"
#include "ddprun/worker/libtorch/zero_redundancy_optimizer.h"

using ddprun::torch::DistributedDataParallel;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
bool is(const at::Tensor& tensor, double value) {
  return tensor.defined() && torch::allclose(tensor, torch::full_like(tensor, value));
}

// Two layers of one weight, of which a pass may use either.
struct TwoImpl : torch::nn::Module {
  torch::Tensor first = register_parameter("first", torch::ones(1));
  torch::Tensor second = register_parameter("second", torch::ones(1));
  torch::Tensor count = register_buffer("count", torch::zeros(1));
  torch::Tensor forward(const torch::Tensor& input, bool use_second) {
    return use_second ? input * first * second : input * first;
  }
};
TORCH_MODULE(Two);

Two make_two(int rank) {
  Two two;
  torch::NoGradGuard no_grad;
  two->first.fill_(1 + rank);
  two->count.fill_(rank + 5);
  return two;
}

void ranks_start_alike_and_average(ddprun::ProcessGroup& group) {
  auto two = make_two(group.rank());
  DistributedDataParallel ddp(two, group);
  require(is(two->first, 1) && is(two->count, 5), "rank 0's parameters and buffers are everybody's");
  for (const bool to_none : {true, false, true}) {
    two->zero_grad(to_none);
    ddp(torch::full({1}, 1.0 + group.rank()), true).backward();
    require(is(two->first.grad(), 1.5) && is(two->second.grad(), 1.5), "gradients are averages");
  }
}

void passes_without_synchronization_add_up(ddprun::ProcessGroup& group) {
  auto two = make_two(0);
  DistributedDataParallel ddp(two, group);
  {
    const auto local = ddp.no_sync();
    ddp(torch::full({1}, 1.0 + group.rank()), true).backward();
    require(is(two->first.grad(), 1 + group.rank()), "a local pass stays local");
  }
  ddp(torch::full({1}, 1.0 + group.rank()), true).backward();
  require(is(two->first.grad(), 3), "the pass after it averages the sums");
}

void buffers_are_copied_in_the_first_pass_of_a_step(ddprun::ProcessGroup& group) {
  auto two = make_two(0);
  DistributedDataParallel ddp(two, group);
  const auto pass = [&](int own_count) {
    two->count.fill_(own_count + group.rank());
    ddp(torch::ones(1), true).backward();
    return two->count;
  };
  {
    const auto local = ddp.no_sync();
    require(is(pass(7), 7), "the first pass of a step has rank 0's buffers");
    require(is(pass(8), 8 + group.rank()), "the second pass has the rank's own");
  }
  require(is(pass(9), 9 + group.rank()), "the last pass has the rank's own");
  require(is(pass(10), 10), "the first pass of the next step has rank 0's buffers");
}

void a_parameter_without_gradient_is_an_error(ddprun::ProcessGroup& group) {
  auto two = make_two(0);
  DistributedDataParallel ddp(two, group);
  try {
    ddp(torch::ones(1), false).backward();
  } catch (const std::exception& error) {
    require(std::string(error.what()).find("second") != std::string::npos, error.what());
    return;
  }
  require(false, "no error for a parameter that a pass did not reach");
}

void unused_parameters_are_found(ddprun::ProcessGroup& group) {
  auto two = make_two(0);
  DistributedDataParallel ddp(two, group, {.find_unused_parameters = true});
  ddp(torch::ones(1), false).backward();
  require(is(two->first.grad(), 1) && !two->second.grad().defined(), "what no rank used has no gradient");
  two->zero_grad();
  ddp(torch::ones(1), group.rank() == 0).backward();
  require(is(two->second.grad(), 0.5), "what one rank used has a gradient everywhere");
  two->zero_grad(true);
  ddp(torch::ones(1), group.rank() == 1).backward();
  require(is(two->second.grad(), 0.5), "nothing is left of the pass before");
}

void ranks_with_fewer_inputs_join(ddprun::ProcessGroup& group) {
  auto two = make_two(0);
  DistributedDataParallel ddp(two, group);
  torch::optim::SGD optimizer(two->parameters(), 0.1);
  int steps = 0;
  ddp.join([&] {
    for (; steps < 3 + 2 * group.rank(); ++steps) {
      optimizer.zero_grad();
      ddp(torch::ones(1), true).backward();
      optimizer.step();
    }
  });
  require(steps == 3 + 2 * group.rank(), "each rank takes its own steps");
  const auto all = torch::tensor({two->first.item<float>()});
  auto sum = all.clone();
  group.allreduce({sum.data_ptr(), 1, ddprun::DType::float32}, ddprun::ReduceOp::sum, {.blocking = true});
  require(is(sum, 2 * all.item<double>()), "all ranks end with the same parameters");
}

void averages_may_be_those_of_the_ranks_with_inputs(ddprun::ProcessGroup& group) {
  auto two = make_two(0);
  DistributedDataParallel ddp(two, group);
  const auto passes = [&] {
    for (int pass = 0; pass < 1 + group.rank(); ++pass) {
      two->zero_grad();
      ddp(torch::full({1}, 2.0), true).backward();
      require(is(two->first.grad(), 2), "the average over the ranks that have inputs");
    }
  };
  ddp.join(passes, {.divide_by_initial_world_size = false});
}

// Adam treats parameters independently: the bits are those of the whole optimizer.
void divided_updates_are_the_same(ddprun::ProcessGroup& group) {
  torch::manual_seed(1);
  torch::nn::Sequential whole(torch::nn::Linear(6, 5), torch::nn::Linear(5, 3)), divided;
  torch::manual_seed(1);
  divided = torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::Linear(5, 3));
  torch::optim::Adam adam(whole->parameters(), torch::optim::AdamOptions(0.01));
  ddprun::torch::ZeroRedundancyOptimizer<torch::optim::Adam> zero(divided->parameters(), group,
                                                                  torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 5; ++step) {
    const auto inputs = torch::randn({4, 6});
    adam.zero_grad();
    whole->forward(inputs).square().sum().backward();
    adam.step();
    zero.zero_grad();
    divided->forward(inputs).square().sum().backward();
    zero.step();
  }
  for (std::size_t p = 0; p < whole->parameters().size(); ++p)
    require(torch::equal(whole->parameters()[p], divided->parameters()[p]), "divided updates");
  require(zero.local() && zero.local()->state().size() < adam.state().size(), "each rank has a part of the state");
}

}  // namespace

// usage: passes [BACK END]
int main(int argc, char** argv) try {
  const auto env = ddprun::WorkerEnv::from(ddprun::Environment::capture());
  const auto world = ddprun::init_process_group({.backend = argc > 1 ? argv[1] : "auto", .env = env});
  ranks_start_alike_and_average(world->group());
  passes_without_synchronization_add_up(world->group());
  buffers_are_copied_in_the_first_pass_of_a_step(world->group());
  a_parameter_without_gradient_is_an_error(world->group());
  unused_parameters_are_found(world->group());
  ranks_with_fewer_inputs_join(world->group());
  averages_may_be_those_of_the_ranks_with_inputs(world->group());
  divided_updates_are_the_same(world->group());
  std::printf("rank %d: the passes are right over %s\n", env.rank, world->group().backend().data());
} catch (const std::exception& error) {
  std::fprintf(stderr, "passes: %s\n", error.what());
  return 1;
}

#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/autograd/ops.h"
#include "worker/nn/models.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "tests/support/run_ranks.h"

// A small network that ranks train together, whichever part of it each of them keeps.
namespace ddprun::testing {

inline constexpr BucketLimits small_buckets{.first_bytes = 64, .bytes = 512};

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

inline std::unique_ptr<nn::Module> make_net() {
  Generator generator(3);
  return nn::make_model("mlp", {.input = {7}, .outputs = 3, .hidden = {13}}, generator);
}

// Uses a batch of its own for each step and rank.
inline void backward(DataParallelism& ddp, int step, int rank) {
  ddp.zero_grad();
  Generator generator(5, static_cast<std::uint64_t>(100 * step + rank));
  Tensor input = Tensor::empty({4, 7}), target = Tensor::empty({4, 3});
  fill_normal(input, 0, 1, generator);
  fill_normal(target, 0, 1, generator);
  mse_loss(ddp.forward(Variable(input)), target).backward();
}

inline std::map<std::string, std::vector<float>> values_of(const optim::NamedTensors& tensors) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& [name, tensor] : tensors) all[name] = {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
  return all;
}

inline std::map<std::string, std::vector<float>> values_of(const nn::Module& net) {
  optim::NamedTensors tensors;
  for (const auto& [name, parameter] : net.named_parameters()) tensors.emplace_back(name, parameter.value());
  return values_of(tensors);
}

inline bool nearly_equal(const std::map<std::string, std::vector<float>>& a,
                         const std::map<std::string, std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, values] : a) {
    const auto& others = b.at(name);
    if (values.size() != others.size()) return false;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (std::abs(values[i] - others[i]) > 1e-6F + 1e-5F * std::abs(others[i])) return false;
  }
  return true;
}

struct Learnt {
  std::map<std::string, std::vector<float>> parameters, state;
};

// Returns what one optimizer of all parameters at each of that many ranks learns in that many steps.
inline Learnt learn_whole(int ranks, int steps) {
  Learnt learnt;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const auto net = make_net();
    DistributedDataParallel ddp(*net, group, {.limits = small_buckets});
    const auto optimizer = optim::make_optimizer("adam", {.lr = 0.01}, net->named_parameters());
    for (int step = 0; step < steps; ++step) {
      backward(ddp, step, group.rank());
      optimizer->step();
    }
    if (group.rank() == 0) learnt = {values_of(*net), values_of(optimizer->state())};
  });
  return learnt;
}

}  // namespace ddprun::testing

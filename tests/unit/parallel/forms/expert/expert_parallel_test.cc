#include "worker/parallel/forms/expert/expert_parallel.h"

#include "common/error.h"
#include "worker/nn/loss_factor_scope.h"
#include "worker/parallel/forms/expert/expert_data_parallel.h"
#include "worker/parallel/mesh/device_mesh.h"
#include "worker/parallel/sharding/sharded_state.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

std::unique_ptr<nn::Module> make_gpt_with_experts(std::int64_t experts = 4) {
  Generator generator(7);
  return nn::make_model("gpt",
                        {.input = {context},
                         .input_dtype = DType::int64,
                         .outputs = vocabulary,
                         .gpt = {.layers = 2, .heads = 4, .width = 16, .context = context},
                         .experts = {.experts = experts, .router_z_loss = 0.1}},
                        generator);
}

Variable loss_of(const Variable& result, std::uint64_t stream) {
  return cross_entropy(reshape(result, {-1, vocabulary}), tokens(stream).reshape({-1}));
}

// Returns the gradients of all ranks' batches in one.
std::map<std::string, Tensor> gradients_at_one_rank(int ranks) {
  const auto model = make_gpt_with_experts();
  std::vector<Variable> inputs;
  std::vector<Variable> targets;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.emplace_back(tokens(static_cast<std::uint64_t>(2 * rank)));
    targets.emplace_back(tokens(static_cast<std::uint64_t>(2 * rank + 1)).reshape({-1}));
  }
  const Variable scores = reshape((*model)(concat(inputs, 0)), {-1, vocabulary});
  cross_entropy(scores, concat(targets, 0).value()).backward();
  std::map<std::string, Tensor> all;
  for (const auto& [name, parameter] : model->named_parameters()) all.emplace(name, parameter.grad());
  return all;
}

}  // namespace

TEST_CASE("gradients of divided experts are those of one rank with all samples") {
  for (const auto& [ranks, expert] : {std::pair(1, 1), std::pair(2, 2), std::pair(4, 4), std::pair(4, 2)}) {
    const auto whole = gradients_at_one_rank(ranks);
    run_ranks(ranks, [&, expert = expert](ProcessGroup& group) {
      const DeviceMesh mesh(group, {{"data", mesh_rest}, {"expert", expert}});
      const auto model = make_gpt_with_experts();
      ExpertParallel experts(*model, mesh.group("expert"), mesh.all());
      ExpertDataParallel ddp(*model, *experts.shards(), mesh.group("data"), mesh.all());
      ddp.zero_grad();
      const auto stream = static_cast<std::uint64_t>(2 * group.rank());
      loss_of(ddp.forward(Variable(tokens(stream))), stream + 1).backward();
      for (const auto& [name, parameter] : model->named_parameters()) {
        const double error = largest_difference(experts.shards()->whole(name, parameter.grad()), whole.at(name));
        require(error < 2e-6, "the gradient of " + name + " differs by " + std::to_string(error));
      }
    });
  }
}

TEST_CASE("a rank has its part of the bytes of experts, and everything else") {
  run_ranks(4, [](ProcessGroup& group) {
    const auto model = make_gpt_with_experts(), whole = make_gpt_with_experts();
    const ExpertParallel experts(*model, group, group);
    int divided = 0;
    for (const auto& [name, parameter] : model->named_parameters()) {
      const std::size_t bytes = whole->parameter(name).value().bytes();
      const bool is_expert = name.find("mlp.c_") != std::string::npos;
      require(parameter.value().bytes() == (is_expert ? bytes / 4 : bytes), name);
      divided += is_expert ? 1 : 0;
    }
    require(divided == 8, "weight and bias of two layers in two blocks");
  });
}

// Rank 1 has no samples, and makes a pass that counts for nothing: its experts compute rank 0's, and gradients are half
// of what rank 0 computes.
TEST_CASE("a rank without samples computes its experts for the others") {
  const auto whole = gradients_at_one_rank(1);
  run_ranks(2, [&](ProcessGroup& group) {
    const DeviceMesh mesh(group, {{"data", mesh_rest}, {"expert", 2}});
    const auto model = make_gpt_with_experts();
    ExpertParallel experts(*model, mesh.group("expert"), mesh.all());
    ExpertDataParallel ddp(*model, *experts.shards(), mesh.group("data"), mesh.all());
    ddp.zero_grad();
    const double factor = group.rank() == 0 ? 1 : 0;
    const nn::LossFactorScope scope(factor);
    mul(loss_of(ddp.forward(Variable(tokens(0))), 1), factor).backward();
    for (const auto& [name, parameter] : model->named_parameters()) {
      const Variable doubled = mul(Variable(parameter.grad()), 2);
      const double error = largest_difference(experts.shards()->whole(name, doubled.value()), whole.at(name));
      require(error < 2e-6, "the gradient of " + name + " differs by " + std::to_string(error));
    }
  });
}

TEST_CASE("a model without experts, or with a number of them that ranks do not divide, is refused") {
  const auto refusal = [](const std::function<std::unique_ptr<nn::Module>()>& make) {
    std::string text;
    run_ranks(2, [&](ProcessGroup& group) {
      const auto model = make();
      try {
        const ExpertParallel experts(*model, group, group);
      } catch (const Error& e) {
        require(e.code() == Errc::usage, e.what());
        if (group.rank() == 0) text = e.what();
      }
    });
    return text;
  };
  CHECK_THAT(refusal([] { return make_gpt(); }), Catch::Contains("the model has no experts"));
  CHECK_THAT(refusal([] { return make_gpt_with_experts(3); }), Catch::Contains("3 experts are no multiple of 2 ranks"));
}

TEST_CASE("a delayed parameter waits for none that is averaged apart from it") {
  const std::string of_expert = "h.0.mlp.c_fc.weight", other = "h.0.attn.c_attn.weight";
  const auto refusal = [](const std::string& delayed, const std::string& awaited) {
    std::string text;
    run_ranks(2, [&](ProcessGroup& group) {
      const auto model = make_gpt_with_experts();
      DeviceMesh mesh(group, {{"data", mesh_rest}, {"expert", 2}});
      ExpertParallel experts(*model, mesh.group("expert"), mesh.all());
      const DdpOptions options{.delay_all_reduce_named_params = {delayed}, .param_to_hook_all_reduce = awaited};
      try {
        const ExpertDataParallel ddp(*model, *experts.shards(), mesh.group("data"), mesh.all(), options);
      } catch (const Error& e) {
        require(e.code() == Errc::usage, e.what());
        if (group.rank() == 0) text = e.what();
      }
    });
    return text;
  };
  CHECK_THAT(refusal(of_expert, other), Catch::StartsWith("delay_all_reduce_named_params: " + of_expert +
                                                          " cannot wait for param_to_hook_all_reduce = " + other));
  CHECK_THAT(refusal(other, of_expert), Catch::StartsWith("delay_all_reduce_named_params: " + other +
                                                          " cannot wait for param_to_hook_all_reduce = " + of_expert));
  CHECK(refusal(other, "h.1.ln_1.weight").empty());
  CHECK(refusal(of_expert, "h.1.mlp.c_fc.weight").empty());
}

TEST_CASE("a model is evaluated by all its ranks, and experts are whole again as parts of a checkpoint") {
  const auto whole = make_gpt_with_experts();
  whole->train(false);
  const Tensor expected = (*whole)(Variable(tokens())).value();
  run_ranks(2, [&](ProcessGroup& group) {
    const auto model = make_gpt_with_experts();
    const ExpertParallel experts(*model, group, group);
    model->train(false);
    const NoGradScope no_grad;
    require(largest_difference((*model)(Variable(tokens())).value(), expected) < 2e-6, "results");
    sharding::NamedTensors own;
    for (const auto& [name, parameter] : model->named_parameters()) own.emplace_back(name, parameter.value());
    const auto placements = sharding::placements_of({experts.shards()}, own);
    const auto gathered =
        sharding::ShardedState(sharding::placed_tensors(placements, own, nullptr), own, group).gather();
    require(gathered.size() == (group.rank() == 0 ? own.size() : 0), "rank 0 has the whole");
    for (const auto& [name, tensor] : gathered)
      require(largest_difference(tensor, whole->parameter(name).value()) == 0, name);
  });
}

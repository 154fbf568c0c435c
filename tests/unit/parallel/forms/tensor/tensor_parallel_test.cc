#include "worker/parallel/forms/tensor/tensor_parallel.h"

#include <map>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/placement_check.h"
#include "worker/nn/layers.h"
#include "worker/parallel/forms/tensor/layers.h"
#include "worker/parallel/sharding/sharded_state.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using MakeModel = std::function<std::unique_ptr<nn::Module>()>;
// Makes a scalar of a model's result; group is null for a whole model.
using Loss = std::function<Variable(const Variable& result, CountedGroup* group)>;

Variable mean_square(const Variable& result, CountedGroup*) {
  return mse_loss(result, normal_tensor(result.shape(), 5));
}

Variable next_token(const Variable& result, CountedGroup* group) {
  const Variable scores = reshape(result, {-1, result.shape().back()});
  const Tensor targets = tokens(2).reshape({-1});
  return group ? vocabulary_parallel_cross_entropy(scores, targets, *group) : cross_entropy(scores, targets);
}

// Loss and gradients of a divided model are those of the whole one.
void check_like_whole(const char* name, const MakeModel& make, const Tensor& input, const Loss& loss,
                      Unsharded undivided = Unsharded::whole) {
  constexpr double tolerance = 2e-6;
  const auto whole = make();
  const nn::RandomScope random(keys_of_batch());
  const Variable expected = loss((*whole)(Variable(input)), nullptr);
  expected.backward();
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      const nn::RandomScope scope(keys_of_batch());
      const autograd::PlacementCheckScope placements;
      const auto model = make();
      TensorParallel tensor(*model, tensor_plan(name, *model, undivided), group);
      const Variable own = loss((*model)(Variable(input)), &tensor.group());
      const double difference = std::abs(own.value().item() - expected.value().item());
      require(difference < tolerance, "the loss differs by " + std::to_string(difference));
      own.backward();
      tensor.complete_gradients(model->named_parameters());
      for (const auto& [path, parameter] : model->named_parameters()) {
        const Tensor gradient = tensor.shards()->whole(path, parameter.grad());
        const double error = largest_difference(gradient, whole->parameter(path).grad());
        require(error < tolerance, "the gradient of " + path + " differs by " + std::to_string(error));
      }
    });
  }
}

Tensor row_inputs() {
  return normal_tensor({batch, 6}, 3);
}

std::string refusal(const char* name, const MakeModel& make, int ranks) {
  std::string text;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const auto model = make();
    try {
      const TensorParallel tensor(*model, tensor_plan(name, *model), group);
    } catch (const Error& e) {
      if (group.rank() == 0) text = e.what();
    }
  });
  return text;
}

}  // namespace

TEST_CASE("an MLP of which ranks have parts computes what the whole one does") {
  check_like_whole(
      "mlp", [] { return make_mlp({8}); }, row_inputs(), mean_square);
  check_like_whole(
      "mlp",
      [] {
        return make_mlp({8, 12});
      },
      row_inputs(), mean_square);  // the last layer is whole
  check_like_whole(
      "mlp",
      [] {
        return make_mlp({8, 12, 4}, 0.3);
      },
      row_inputs(), mean_square);
}

TEST_CASE("a GPT of which ranks have parts computes what the whole one does") {
  check_like_whole(
      "gpt", [] { return make_gpt(); }, tokens(), next_token);
  check_like_whole(
      "gpt", [] { return make_gpt(0.2); }, tokens(), next_token);
  check_like_whole(
      "gpt", [] { return make_gpt(0, false); }, tokens(), next_token);
}

TEST_CASE("a divided GPT computes its blocks again for the backward pass") {
  const auto make = [] {
    auto model = make_gpt(0.2);
    model->set_recompute(nn::Recompute::blocks);
    return model;
  };
  check_like_whole("gpt", make, tokens(), next_token);
}

TEST_CASE("a GPT of which each rank has a range of the positions, too, computes what the whole one does") {
  check_like_whole(
      "gpt", [] { return make_gpt(); }, tokens(), next_token, Unsharded::positions);
  check_like_whole(
      "gpt", [] { return make_gpt(0.2); }, tokens(), next_token, Unsharded::positions);
  const auto make = [] {
    auto model = make_gpt(0.2, false);
    model->set_recompute(nn::Recompute::blocks);
    return model;
  };
  check_like_whole("gpt", make, tokens(), next_token, Unsharded::positions);
}

TEST_CASE("divided positions cost the traffic of whole ones, and keep less for the backward pass") {
  std::uint64_t bytes[2] = {};
  std::size_t saved[2] = {};
  run_ranks(2, [&](ProcessGroup& group) {
    for (const Unsharded undivided : {Unsharded::whole, Unsharded::positions}) {
      const auto model = make_gpt();
      TensorParallel tensor(*model, tensor_plan("gpt", *model, undivided), group);
      std::map<std::string, std::size_t> by_module;
      Variable loss;
      {
        const autograd::SavedBytesScope scope(by_module);
        loss = next_token((*model)(Variable(tokens())), &tensor.group());
      }
      loss.backward();
      if (group.rank() != 0) continue;
      const auto at = static_cast<std::size_t>(undivided);
      bytes[at] = tensor.group().bytes();
      for (const auto& [path, count] : by_module)
        if (path.find("ln_") != std::string::npos) saved[at] += count;
    }
  });
  CHECK(bytes[1] == bytes[0]);
  CHECK(saved[0] > 0);
  CHECK(2 * saved[1] == saved[0]);
}

TEST_CASE("under autocast a divided GPT is as close to the whole one as 16 bits are") {
  check_like_whole(
      "gpt", [] { return make_gpt(); }, tokens(),
      [](const Variable& result, CountedGroup* group) { return next_token(result, group); });
  const auto whole = make_gpt();
  const auto in_bf16 = [](nn::Module& model, CountedGroup* group) {
    const autograd::AutocastScope scope(DType::bfloat16);
    return next_token(model(Variable(tokens())), group);
  };
  const double expected = in_bf16(*whole, nullptr).value().item();
  run_ranks(2, [&](ProcessGroup& group) {
    const auto model = make_gpt();
    TensorParallel tensor(*model, tensor_plan("gpt", *model), group);
    const Variable loss = in_bf16(*model, &tensor.group());
    require(std::abs(loss.value().item() - expected) < 1e-2, "loss " + std::to_string(loss.value().item()));
    loss.backward();
  });
}

TEST_CASE("each rank keeps its share of every divided parameter") {
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      const auto whole = make_gpt(), model = make_gpt();
      const TensorParallel tensor(*model, tensor_plan("gpt", *model), group);
      std::size_t divided = 0;
      for (const auto& [name, parameter] : model->named_parameters()) {
        const std::size_t bytes = whole->parameter(name).value().bytes();
        const std::size_t own = parameter.value().storage()->bytes();
        require(own == (tensor.shards()->contains(name) ? bytes / static_cast<std::size_t>(ranks) : bytes), name);
        divided += tensor.shards()->contains(name) ? 1 : 0;
      }
      require(divided == 1 + 2 * 6, "the embedding, and six tensors of each block");
    });
  }
}

TEST_CASE("a pass exchanges two activations forward and two backward in each block") {
  constexpr std::uint64_t activation = 4 * batch * context * 16, loss_of_rows = 3 * 8 * batch * context;
  run_ranks(2, [](ProcessGroup& group) {
    const auto model = make_gpt();
    TensorParallel tensor(*model, tensor_plan("gpt", *model), group);
    const Variable loss = next_token((*model)(Variable(tokens())), &tensor.group());
    // The bytes are those of two blocks, the embedding, and three numbers a position for the loss.
    require(tensor.group().bytes() == (2 * 2 + 1) * activation + loss_of_rows, "forward");
    loss.backward();
    require(tensor.group().bytes() == (2 * 4 + 2) * activation + loss_of_rows,
            "backward: the blocks, the output layer");
  });
}

TEST_CASE("all ranks begin with rank 0's parameters") {
  run_ranks(2, [](ProcessGroup& group) {
    const auto expected = make_mlp({8});
    const auto model = make_mlp({8});
    for (const auto& [name, parameter] : model->named_parameters()) {
      Tensor value = parameter.value();
      if (group.rank() != 0) value.fill(0.5);
    }
    const TensorParallel tensor(*model, tensor_plan("mlp", *model), group);
    for (const auto& [name, parameter] : model->named_parameters())
      require(
          largest_difference(tensor.shards()->whole(name, parameter.value()), expected->parameter(name).value()) == 0,
          name);
  });
}

TEST_CASE("rank 0 has parameters and an optimizer's state whole, and gives every rank its part") {
  run_ranks(4, [](ProcessGroup& group) {
    const auto model = make_gpt(), whole = make_gpt();
    const TensorParallel tensor(*model, tensor_plan("gpt", *model), group);
    sharding::NamedTensors parameters, own;
    for (const auto& [name, parameter] : model->named_parameters()) {
      parameters.emplace_back(name, parameter.value());
      own.emplace_back(name + ".exp_avg", parameter.value());
      own.emplace_back(name + ".steps", Tensor::from<std::int64_t>({3}, {}));
    }
    const auto placements = sharding::placements_of({tensor.shards()}, parameters);
    const sharding::ShardedState state(sharding::placed_tensors(placements, own, nullptr), own, group);
    const auto gathered = state.gather();
    require(gathered.size() == (group.rank() == 0 ? own.size() : 0), "rank 0 alone");
    for (const auto& [name, value] : gathered) {
      const std::string parameter = name.substr(0, name.rfind('.'));
      const bool counts = value.dtype() == DType::int64;
      require(counts ? value.item() == 3 : largest_difference(value, whole->parameter(parameter).value()) == 0, name);
    }

    auto read = state.whole_like();
    for (std::size_t i = 0; i < read.size(); ++i) read[i].second.copy_from(gathered[i].second.clone());
    std::vector<Tensor> before;
    for (auto& [name, value] : own) {
      before.push_back(value.clone());
      if (group.rank() > 0 || value.numel() != numel(value.shape())) value.fill(0);
    }
    state.scatter(read);
    for (std::size_t i = 0; i < own.size(); ++i)
      require(largest_difference(own[i].second, before[i]) == 0, "back: " + own[i].first);
  });
}

TEST_CASE("sizes that the ranks do not divide are refused by the module's name") {
  CHECK(refusal(
            "gpt", [] { return make_gpt(); }, 3) ==
        "module wte: 16 tokens of the vocabulary are no multiple of 3 tensor-parallel ranks");
  CHECK(refusal(
            "gpt", [] { return make_gpt(); }, 8) ==
        "module h.0.attn: 4 heads are no multiple of 8 tensor-parallel ranks");
  CHECK(refusal(
            "mlp", [] { return make_mlp({6}); }, 4) ==
        "module fc1: 6 outputs are no multiple of 4 tensor-parallel ranks");
  Generator generator(1);
  const auto linear = nn::make_model("linear", {.input = {6}, .outputs = 8}, generator);
  const auto mlp = make_mlp({8});
  CHECK_THROWS_WITH(tensor_plan("mlp", *mlp, Unsharded::positions), "model mlp has no positions to divide");
  CHECK_THROWS_WITH(tensor_plan("linear", *linear), "model linear has no layers that tensor parallelism divides");
}

TEST_CASE("every model with a plan has the modules of its plan") {
  const nn::ModelOptions image{.input = {1, 28, 28}, .outputs = 10, .hidden = {8}};
  for (const char* name : {"cnn", "cnn_bn", "conv_net", "mlp", "linear_pair", "sequential_cnn"}) {
    INFO(name);
    const auto make = [&] {
      Generator generator(2);
      return nn::make_model(name, image, generator);
    };
    CHECK(refusal(name, make, 2).empty());
  }
}

TEST_CASE("a rule that is left out of a plan is named by the operands that do not go together") {
  const auto error_without = [](TensorStyle style, const std::string& module, Unsharded unsharded) {
    std::string error = "none";
    run_ranks(2, [&](ProcessGroup& group) {
      const nn::RandomScope random(keys_of_batch());
      const auto model = make_gpt();
      auto plan = tensor_plan("gpt", *model, unsharded);
      require(std::erase_if(plan, [&](const auto& rule) { return rule.style == style && rule.module == module; }) == 1,
              "there is no such rule");
      const TensorParallel tensor(*model, plan, group);
      const autograd::PlacementCheckScope check;
      try {
        (*model)(Variable(tokens()));
      } catch (const Error& e) {
        if (group.rank() == 0) error = e.what();
      }
    });
    return error;
  };
  // Its gradients would be those of some positions.
  CHECK_THAT(error_without(TensorStyle::partial_gradients, "h.1.ln_2", Unsharded::positions),
             Catch::Contains("h.1.ln_2.weight is the same at all ranks") && Catch::Contains(" is each rank's own"));
  CHECK(error_without(TensorStyle::vocabulary_head, "lm_head", Unsharded::whole) ==
        "linear in module lm_head: over the axis tensor the result of reshape in module lm_head is the same at all "
        "ranks, and wte.weight is each rank's own: a collective is missing");
}

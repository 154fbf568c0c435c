#include "worker/parallel/forms/context/context_parallel.h"

#include <map>

#include "common/error.h"
#include "tests/support/catch.h"
#include "tests/unit/parallel/forms/tensor/tensor_model.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

std::map<std::string, Tensor> gradients_of(nn::Module& model) {
  std::map<std::string, Tensor> gradients;
  for (const auto& [name, parameter] : model.named_parameters()) gradients[name] = parameter.grad();
  return gradients;
}

Tensor weights() {
  return normal_tensor({batch, context, vocabulary}, 3);
}

}  // namespace

TEST_CASE("ranks compute their positions' scores, and together the gradients of the whole model") {
  const int ranks = GENERATE(2, 4);
  const auto whole = make_gpt();
  const Tensor scores = (*whole)(Variable(tokens())).value();
  sum(mul((*whole)(Variable(tokens())), Variable(weights()))).backward();
  const auto expected = gradients_of(*whole);
  run_ranks(ranks, [&](ProcessGroup& all) {
    const auto model = make_gpt();
    {
      ContextParallel context(*model, all);
      const Variable own = (*model)(Variable(context.own_positions(tokens())));
      require(largest_difference(own.value(), context.own_positions(scores)) < 1e-5, "the scores");
      sum(mul(own, Variable(context.own_positions(weights())))).backward();
    }
    for (const auto& [name, gradient] : gradients_of(*model)) {
      Tensor total = gradient.contiguous();
      all.allreduce({total.raw(), static_cast<std::size_t>(total.numel()), total.dtype()}, ReduceOp::sum,
                    {.blocking = true});
      require(largest_difference(total, expected.at(name)) < 1e-4, name);
    }
    require(largest_difference((*model)(Variable(tokens())).value(), scores) == 0, "a whole model again");
  });
}

TEST_CASE("a model whose positions cannot be divided is refused") {
  const auto refusal = [](nn::Module& model) {
    std::string text;
    run_ranks(1, [&](ProcessGroup& all) {
      try {
        ContextParallel context(model, all);
      } catch (const Error& e) {
        require(e.code() == Errc::usage, "the code");
        text = e.what();
      }
    });
    return text;
  };
  CHECK(refusal(*make_mlp({8})) == "context parallelism: the model has no causal attention");
}

TEST_CASE("more positions than the model has are refused") {
  run_ranks(2, [](ProcessGroup& all) {
    const auto model = make_gpt();
    ContextParallel parallel(*model, all);
    std::string refusal;
    try {
      (*model)(Variable(Tensor::zeros({1, context / 2 + 2}, DType::int64)));
    } catch (const Error& e) {
      refusal = e.what();
    }
    require(refusal.find("with positions below 8") != std::string::npos, refusal);
  });
}

#include "worker/trainer/commands/generation.h"

#include <map>
#include <set>

#include "worker/nn/models.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

// Scores the token after the last one highest, of five; remembers how many tokens it got.
struct Counting : nn::Module {
  Variable forward(const Variable& input) override {
    const std::int64_t time = input.shape()[1];
    longest = std::max(longest, time);
    Tensor logits = Tensor::zeros({1, time, 5});
    for (std::int64_t t = 0; t < time; ++t)
      logits.data<float>()[t * 5 + (input.value().data<std::int64_t>()[t] + 1) % 5] = 3;
    return Variable(logits);
  }
  std::int64_t longest = 0;
};

std::map<std::int64_t, int> draws(const SamplingOptions& options) {
  const std::vector<float> logits{1, 3, 2, -1};
  Generator generator(7);
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < 10000; ++i) ++counts[sample_token(logits, options, generator)];
  return counts;
}

}  // namespace

TEST_CASE("a token is drawn with the probabilities that temperature and top-k leave") {
  auto counts = draws({});
  const double total = std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + std::exp(-1.0);
  CHECK(counts[1] == Approx(10000 * std::exp(3.0) / total).epsilon(0.05));
  CHECK(counts[2] == Approx(10000 * std::exp(2.0) / total).epsilon(0.05));
  counts = draws({.temperature = 0.5});
  CHECK(counts[2] == Approx(10000 / (1 + std::exp(2.0) + std::exp(-2.0) + std::exp(-6.0))).epsilon(0.1));
  counts = draws({.top_k = 2});
  CHECK(counts[0] + counts[3] == 0);
  CHECK(counts[2] == Approx(10000 / (1 + std::exp(1.0))).epsilon(0.05));
  CHECK(draws({.temperature = 0}) == std::map<std::int64_t, int>{{1, 10000}});
  CHECK(draws({.top_k = 1}) == std::map<std::int64_t, int>{{1, 10000}});
}

TEST_CASE("text is generated token by token from the last tokens that fit the context") {
  Counting model;
  Generator generator(1);
  std::vector<std::int64_t> tokens;
  generate_tokens(model, {3}, {.tokens = 7, .context = 4, .sampling = {.temperature = 0}}, generator,
                  [&](std::int64_t token) { tokens.push_back(token); });
  CHECK(tokens == std::vector<std::int64_t>{4, 0, 1, 2, 3, 4, 0});
  CHECK(model.longest == 4);
  CHECK_FALSE(model.training());
}

TEST_CASE("a GPT that keeps keys and values generates the same tokens, also beyond its context") {
  Generator weights(2);
  const auto model = nn::make_model("gpt",
                                    {.input = {8},
                                     .input_dtype = DType::int64,
                                     .outputs = 13,
                                     .gpt = {.layers = 2, .heads = 2, .width = 16, .context = 8}},
                                    weights);
  const auto generated = [&](bool incremental) {
    Generator generator(3);
    std::vector<std::int64_t> tokens;
    generate_tokens(*model, {3, 1, 4},
                    {.tokens = 20, .context = 8, .incremental = incremental, .sampling = {.top_k = 5}}, generator,
                    [&](std::int64_t token) { tokens.push_back(token); });
    return tokens;
  };
  const auto tokens = generated(false);
  CHECK(std::set(tokens.begin(), tokens.end()).size() > 3);
  CHECK(generated(true) == tokens);
}

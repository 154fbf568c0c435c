#include "worker/nn/decoding/incremental_decoder.h"

#include <numeric>

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/nn/models.h"
#include "tests/support/numerics.h"

using namespace ddprun;
using namespace ddprun::test;

namespace {

constexpr std::int64_t vocabulary = 11, context = 12;

std::unique_ptr<nn::Module> small_gpt() {
  Generator generator(1);
  auto model = nn::make_model("gpt",
                              {.input = {context},
                               .input_dtype = DType::int64,
                               .outputs = vocabulary,
                               .gpt = {.layers = 2, .heads = 2, .width = 8, .context = context}},
                              generator);
  model->train(false);
  // The weights are large, so that a position which is ignored changes the result by more than rounding.
  for (const auto& [name, parameter] : model->named_parameters())
    for (float& value :
         std::span(Tensor(parameter.value()).data<float>(), static_cast<std::size_t>(parameter.value().numel())))
      value *= 5;
  return model;
}

Tensor tokens(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = begin; i < end; ++i) all.push_back((3 + i * 7) % vocabulary);
  return Tensor::from(all, {1, end - begin});
}

void check_equal_rows(const Tensor& part, const Tensor& all, std::int64_t first) {
  REQUIRE(part.shape() == Shape{1, part.size(1), vocabulary});
  const auto expected = values(all), found = values(part);
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == Approx(expected[static_cast<std::size_t>(first * vocabulary) + i]).epsilon(1e-4).margin(1e-4));
}

}  // namespace

TEST_CASE("a decoder gives what the model gives for the whole sequence, position by position") {
  const auto model = small_gpt();
  const NoGradScope no_grad;
  const Tensor whole = (*model)(Variable(tokens(0, context))).value();
  {
    nn::IncrementalDecoder decoder(*model, context);
    check_equal_rows(decoder(tokens(0, 5)).value(), whole, 0);
    CHECK(decoder.length() == 5);
    check_equal_rows(decoder(tokens(5, 8)).value(), whole, 5);
    for (std::int64_t i = 8; i < context; ++i) check_equal_rows(decoder(tokens(i, i + 1)).value(), whole, i);
  }
  check_equal_rows((*model)(Variable(tokens(0, context))).value(), whole, 0);  // nothing of the decoder remains in it
}

TEST_CASE("a decoder needs a model whose attention it knows") {
  Generator generator(1);
  const auto model = nn::make_model("mlp", {}, generator);
  CHECK_THROWS_AS(nn::IncrementalDecoder(*model, context), Error);
}

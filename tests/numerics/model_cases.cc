#include "tests/numerics/model_cases.h"

#include <cmath>

#include "worker/autograd/ops.h"

namespace ddprun::test {
namespace {

// Returns numbers between low and high, a function of only the key and the position.
Tensor model_pattern(const Shape& shape, std::int64_t key, double low = 0, double high = 1) {
  constexpr std::int64_t prime = 2147483647;
  Tensor values = Tensor::empty(shape, DType::float64);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    std::int64_t x = ((i + 1) * 1103515245 + key * 12345678 + 1) % prime;
    for (int round = 0; round < 2; ++round) x = (x * x + 7) % prime;
    values.data<double>()[i] = low + (high - low) * ((static_cast<double>(x) + 0.25) / static_cast<double>(prime));
  }
  return values;
}

Tensor integers(const Shape& shape, std::int64_t key, std::int64_t below) {
  const Tensor shares = model_pattern(shape, 2000 + key);
  Tensor values = Tensor::empty(shape, DType::int64);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.data<std::int64_t>()[i] = static_cast<std::int64_t>(shares.data<double>()[i] * static_cast<double>(below));
  return values;
}

Shape batch_shape(const ModelCase& model_case) {
  Shape shape = model_case.options.input;
  shape.insert(0, model_case.batch);
  return shape;
}

Variable token_loss(const Variable& logits, const Tensor& targets) {
  return cross_entropy(reshape(logits, {-1, logits.shape().back()}), targets.reshape({-1}));
}

ModelCase make_gpt_case(const std::string& name, std::int64_t time, bool bias) {
  return {.name = name,
          .options = {.input = {time},
                      .input_dtype = DType::int64,
                      .outputs = 17,
                      .gpt = {.layers = 2, .heads = 2, .width = 16, .context = 12, .bias = bias}},
          .loss = token_loss,
          .batch = 4};
}

// Returns layers of 16 features and 2 heads, with 24 features between the linear layers.
nn::ModelOptions small_transformer(const Shape& input, const std::string& activation, bool norm_first) {
  return {.input = input,
          .gpt = {.layers = 2, .heads = 2, .width = 16},
          .encoder = {.feedforward = 24, .activation = activation, .norm_first = norm_first}};
}

std::vector<ModelCase> make_cases() {
  const auto classify = [](const Variable& outputs, const Tensor& targets) { return cross_entropy(outputs, targets); };
  const auto likelihood = [](const Variable& outputs, const Tensor& targets) { return nll_loss(outputs, targets); };
  const auto regress = [](const Variable& outputs, const Tensor& targets) {
    return mse_loss(outputs, targets.to(outputs.dtype()));
  };
  const auto mean_output = [](const Variable& outputs, const Tensor&) { return mean(outputs); };
  const nn::ModelOptions pair{.input = {1}, .outputs = 20};
  return {
      {.name = "cnn", .options = {}, .loss = classify},
      {.name = "cnn_bn", .options = {}, .loss = classify},
      {.name = "conv_net", .options = {}, .loss = likelihood},
      {.name = "sequential_cnn", .options = {}, .loss = classify},
      {.name = "two_part_resnet", .options = {}, .loss = classify},
      {.name = "linear_pair mean_output", .options = pair, .loss = mean_output, .numbers = true},
      {.name = "linear_pair regression", .options = pair, .loss = regress, .numbers = true},
      {.name = "resnet18 cifar",
       .options = {.input = {3, 16, 16}, .channels = 8},
       .loss = classify,
       .lr = 0.001,
       .dtype = DType::float64},
      {.name = "resnet18 imagenet",
       .options = {.input = {3, 32, 32}, .stem = "imagenet", .channels = 8},
       .loss = classify,
       .lr = 0.001,
       .dtype = DType::float64},
      // 53 batch normalizations, the last over 8 numbers a channel, multiply rounding errors by 5 to 30 in each step.
      {.name = "resnet50",
       .options = {.input = {3, 32, 32}, .stem = "imagenet", .channels = 4},
       .loss = classify,
       .steps = 4,
       .lr = 0.00001,
       .dtype = DType::float64},
      {.name = "transformer", .options = small_transformer({2, 7, 5}, "relu", false), .loss = classify},
      {.name = "transformer norm_first", .options = small_transformer({9, 6}, "gelu", true), .loss = classify},
      make_gpt_case("gpt", 12, true),
      make_gpt_case("gpt without bias", 10, false),
  };
}

}  // namespace

const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> cases = make_cases();
  return cases;
}

Tensor model_inputs(const ModelCase& model_case, std::int64_t step) {
  const Shape shape = batch_shape(model_case);
  return model_case.tokens() ? integers(shape, step, model_case.options.outputs)
                             : model_pattern(shape, 1000 + step, -1, 1);
}

Tensor model_targets(const ModelCase& model_case, std::int64_t step) {
  const std::int64_t outputs = model_case.options.outputs;
  if (model_case.numbers) return model_pattern({model_case.batch, outputs}, 3000 + step, -1, 1);
  return integers(model_case.tokens() ? batch_shape(model_case) : Shape{model_case.batch}, 100 + step, outputs);
}

Tensor model_value(const std::string& name, const Shape& shape, std::int64_t key) {
  if (shape.size() > 1) {
    const double bound = std::sqrt(static_cast<double>(shape[0]) / static_cast<double>(numel(shape)));
    return model_pattern(shape, key, -bound, bound);
  }
  if (name.ends_with("weight") || name.ends_with("running_var")) return model_pattern(shape, key, 0.5, 1.5);
  return model_pattern(shape, key, -0.1, 0.1);
}

}  // namespace ddprun::test

#include "tests/bench/train_step/workload.h"

#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/autograd/ops.h"

namespace ddprun::bench {
namespace {

constexpr std::int64_t bytes = 256;  // tokens of a vocabulary of bytes

Arithmetic arithmetic_of_gpt(std::int64_t rows, std::int64_t width, int layers) {
  return {.linears = {{rows, width, 3 * width, layers},
                      {rows, width, width, layers},
                      {rows, width, 4 * width, layers},
                      {rows, 4 * width, width, layers},
                      {rows, width, bytes}},
          .convolutions = {}};
}

Arithmetic arithmetic_of_resnet18(std::int64_t n) {
  return {.linears = {{n, 512, 10}},
          .convolutions = {{n, 3, 64, 3, 1, 1, 32, 1, false},
                           {n, 64, 64, 3, 1, 1, 32, 4},
                           {n, 64, 128, 3, 2, 1, 32},
                           {n, 64, 128, 1, 2, 0, 32},
                           {n, 128, 128, 3, 1, 1, 16, 3},
                           {n, 128, 256, 3, 2, 1, 16},
                           {n, 128, 256, 1, 2, 0, 16},
                           {n, 256, 256, 3, 1, 1, 8, 3},
                           {n, 256, 512, 3, 2, 1, 8},
                           {n, 256, 512, 1, 2, 0, 8},
                           {n, 512, 512, 3, 1, 1, 4, 3}}};
}

nn::ModelOptions gpt(const char* preset, std::int64_t context) {
  return {.input = {context}, .input_dtype = DType::int64, .outputs = bytes, .gpt = {.preset = preset}};
}

Arithmetic arithmetic_of_mlp(std::int64_t n) {
  return {.linears = {{n, 784, 1024, 1, false}, {n, 1024, 1024}, {n, 1024, 10}}, .convolutions = {}};
}
Arithmetic arithmetic_of_cnn(std::int64_t n) {
  return {.linears = {{n, 320, 50}, {n, 50, 10}},
          .convolutions = {{n, 1, 10, 5, 1, 0, 28, 1, false}, {n, 10, 20, 5, 1, 0, 12}}};
}
Arithmetic arithmetic_of_gpt_nano(std::int64_t n) {
  return arithmetic_of_gpt(n * 128, 128, 4);
}
Arithmetic arithmetic_of_gpt_small(std::int64_t n) {
  return arithmetic_of_gpt(n * 256, 384, 6);
}

struct Row {
  std::string_view name;
  const char* model;
  nn::ModelOptions options;
  std::int64_t batch, tokens;
  const char* optimizer;
  Arithmetic (*arithmetic)(std::int64_t batch);
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"cnn", "cnn", {}, 64, 0, "adam", arithmetic_of_cnn},
      {"mlp", "mlp", {.hidden = {1024, 1024}}, 64, 0, "adam", arithmetic_of_mlp},
      {"mlp_sgd", "mlp", {.hidden = {1024, 1024}}, 64, 0, "sgd", arithmetic_of_mlp},
      {"gpt_nano", "gpt", gpt("nano", 128), 8, 128, "adam", arithmetic_of_gpt_nano},
      {"gpt_small", "gpt", gpt("small", 256), 4, 256, "adam", arithmetic_of_gpt_small},
      {"resnet18", "resnet18", {.input = {3, 32, 32}}, 32, 0, "sgd", arithmetic_of_resnet18},
  };
  return all;
}

Tensor random_indices(const Shape& shape, std::uint64_t below, Generator& generator) {
  Tensor result = Tensor::empty(shape, DType::int64);
  for (std::int64_t i = 0; i < result.numel(); ++i)
    result.data<std::int64_t>()[i] = static_cast<std::int64_t>(generator.below(below));
  return result;
}

}  // namespace

Workload workload_named(std::string_view name, std::int64_t batch) {
  for (const Row& row : rows()) {
    if (row.name != name) continue;
    const std::int64_t samples = batch > 0 ? batch : row.batch;
    return {std::string(name), row.model, row.options, samples, row.tokens, row.optimizer, row.arithmetic(samples)};
  }
  throw make_error(Errc::usage, "there is no model '{}' to measure; there are: {}", name,
                   fmt::join(workload_names(), ", "));
}

std::vector<std::string_view> workload_names() {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) names.push_back(row.name);
  return names;
}

TrainingStep::TrainingStep(const Workload& workload) : optimizer_name_(workload.optimizer) {
  Generator generator(1);
  model_ = nn::make_model(workload.model, workload.options, generator);
  update_only(model_->named_parameters());
  if (workload.tokens > 0) {
    inputs_ = random_indices({workload.batch, workload.tokens}, bytes, generator);
    labels_ = random_indices({workload.items()}, bytes, generator);
    return;
  }
  Shape shape{workload.batch};
  for (const std::int64_t size : workload.options.input) shape.push_back(size);
  inputs_ = Tensor::empty(shape);
  fill_normal(inputs_, 0, 1, generator);
  labels_ = random_indices({workload.batch}, 10, generator);
}

Variable TrainingStep::cross_entropy_of(const Variable& scores) const {
  return cross_entropy(reshape(scores, {labels_.numel(), scores.shape().back()}), labels_);
}

void TrainingStep::update_only(const optim::NamedParameters& parameters) {
  optimizer_ = optim::make_optimizer(optimizer_name_, {}, parameters);
}

void TrainingStep::update() {
  optimizer_->step();
  model_->zero_grad();
}

}  // namespace ddprun::bench

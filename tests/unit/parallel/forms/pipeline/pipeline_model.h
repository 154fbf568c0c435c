#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/autograd/ops.h"
#include "worker/nn/models.h"
#include "worker/nn/random_scope.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/forms/pipeline/stage_executor.h"
#include "tests/support/numerics.h"

// Models, and a few steps of training, whole or by stages.
namespace ddprun::testing {

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

struct TestModel {
  std::string name;
  double dropout = 0;
};

inline std::unique_ptr<nn::Module> make(const TestModel& model) {
  Generator generator(3);
  if (model.name == "gpt")
    return nn::make_model("gpt",
                          {.input = {6},
                           .input_dtype = DType::int64,
                           .outputs = 11,
                           .dropout = model.dropout,
                           .gpt = {.layers = 6, .heads = 2, .width = 8, .context = 6}},
                          generator);
  if (model.name == "cnn") return nn::make_model("cnn", {.input = {1, 28, 28}, .outputs = 10}, generator);
  return nn::make_model("mlp", {.input = {7}, .outputs = 3, .hidden = {9, 8, 7, 6}, .dropout = model.dropout},
                        generator);
}

inline constexpr std::int64_t rows = 3;  // rows of a micro-batch

inline Tensor input_of(const TestModel& model, int step, int micro_batch) {
  const auto seed = static_cast<std::uint64_t>(100 * step + micro_batch);
  if (model.name == "cnn") return test::random_tensor({rows, 1, 28, 28}, seed);
  if (model.name != "gpt") return test::random_tensor({rows, 7}, seed);
  Generator generator(seed);
  std::vector<std::int64_t> tokens(rows * 6);
  for (auto& token : tokens) token = static_cast<std::int64_t>(generator.next_u64() % 11);
  return Tensor::from(tokens, {rows, 6});
}

// Returns a loss of the model's result; any scalar suffices.
inline Variable loss_of(const Variable& result) {
  return mean(mul(result, result));
}

inline std::shared_ptr<void> keys_of(int step, int micro_batch) {
  nn::SampleKeys keys{.seed = 1, .epoch = step, .samples = {}};
  for (std::int64_t row = 0; row < rows; ++row) keys.samples.push_back(micro_batch * rows + row);
  return std::make_shared<nn::RandomScope>(keys);
}

struct Learnt {
  std::vector<double> losses;  // by step and micro-batch
  std::map<std::string, std::vector<double>> parameters;
};

inline void record_parameters(const std::vector<std::pair<std::string, Variable>>& parameters, Learnt& learnt) {
  for (const auto& [name, parameter] : parameters) learnt.parameters[name] = test::values(parameter.value());
}

inline constexpr int steps = 3;

inline Learnt learn_whole(const TestModel& which, int micro_batches) {
  const auto model = make(which);
  const auto optimizer = optim::make_optimizer("sgd", {.lr = 0.1}, model->named_parameters());
  Learnt learnt;
  for (int s = 0; s < steps; ++s) {
    model->zero_grad();
    for (int m = 0; m < micro_batches; ++m) {
      const auto scope = keys_of(s, m);
      const Variable loss = loss_of((*model)(Variable(input_of(which, s, m))));
      learnt.losses.push_back(loss.value().item());
      loss.backward();
    }
    optimizer->step();
  }
  record_parameters(model->named_parameters(), learnt);
  return learnt;
}

// The rank of the last stage records losses.
inline pipeline::StepFunctions step_functions(const TestModel& which, int step, int micro_batches,
                                              std::vector<double>& losses) {
  return {.micro_batches = micro_batches,
          .samples = [](int) { return rows; },
          .input = [which, step](int m) { return Variable(input_of(which, step, m)); },
          .loss =
              [&losses](int, const Variable& result) {
                const Variable loss = loss_of(result);
                losses.push_back(loss.value().item());
                return loss;
              },
          .scope = [step](int m) { return keys_of(step, m); },
          .around = {}};
}

inline void require_near(const std::vector<double>& found, const std::vector<double>& expected, double bound,
                         const std::string& what) {
  require(found.size() == expected.size(), what + ": another number of values");
  for (std::size_t i = 0; i < found.size(); ++i)
    require(std::abs(found[i] - expected[i]) <= bound * std::max(1e-3, std::abs(expected[i])),
            what + ": " + std::to_string(found[i]) + " instead of " + std::to_string(expected[i]));
}

}  // namespace ddprun::testing

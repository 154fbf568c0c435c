#include "worker/parallel/forms/tensor/plan.h"

#include <algorithm>

#include "common/error.h"
#include "worker/nn/layers/mixture_of_experts.h"

namespace ddprun {
namespace {

bool has_module(const nn::Module& model, const std::string& name) {
  const auto names = model.module_names();
  return std::ranges::find(names, name) != names.end();
}

// Adds the rules of sequence parallelism to the plan of a GPT.
void add_positions(nn::Module& model, TensorPlan& plan) {
  plan.push_back({"wpe", TensorStyle::own_positions});
  for (const char* path : {"wpe", "ln_f"}) plan.push_back({path, TensorStyle::partial_gradients});
  plan.push_back({"drop", TensorStyle::dropout});
  for (const std::string& number : model.module("h").module_names()) {
    const std::string block = "h." + number;
    for (const char* path : {".ln_1", ".ln_2"}) plan.push_back({block + path, TensorStyle::partial_gradients});
    for (const char* path : {".attn.resid_dropout", ".mlp.dropout"})
      plan.push_back({block + path, TensorStyle::dropout});
  }
}

TensorPlan plan_of_gpt(nn::Module& model) {
  TensorPlan plan{{"wte", TensorStyle::vocabulary_embedding}, {"lm_head", TensorStyle::vocabulary_head}};
  for (const std::string& number : model.module("h").module_names()) {
    const std::string block = "h." + number;
    plan.push_back({block + ".attn", TensorStyle::heads});
    plan.push_back({block + ".attn.c_attn", TensorStyle::column, 3});
    plan.push_back({block + ".attn.attn_dropout", TensorStyle::dropout});
    plan.push_back({block + ".attn.c_proj", TensorStyle::row});
    if (dynamic_cast<nn::MixtureOfExperts*>(&model.module(block + ".mlp"))) {
      plan.push_back({block + ".mlp", TensorStyle::experts});
    } else {
      plan.push_back({block + ".mlp.c_fc", TensorStyle::column});
      plan.push_back({block + ".mlp.c_proj", TensorStyle::row});
    }
  }
  return plan;
}

// Pairs fc1 and fc2, fc3 and fc4, ...; with an odd number of layers the last one stays whole.
TensorPlan plan_of_layers(nn::Module& model) {
  TensorPlan plan;
  for (int first = 1; has_module(model, "fc" + std::to_string(first + 1)); first += 2) {
    const std::string number = std::to_string(first);
    plan.push_back({"fc" + number, TensorStyle::column});
    if (has_module(model, "dropout" + number)) plan.push_back({"dropout" + number, TensorStyle::dropout});
    plan.push_back({"fc" + std::to_string(first + 1), TensorStyle::row});
  }
  return plan;
}

TensorPlan plan_of_numbered_layers(nn::Module&) {
  return {{"4", TensorStyle::column}, {"6", TensorStyle::row}};
}

struct PlanEntry {
  std::string_view model;
  TensorPlan (*plan)(nn::Module&);
};
constexpr PlanEntry rows[] = {
    {"cnn", plan_of_layers},
    {"cnn_bn", plan_of_layers},
    {"conv_net", plan_of_layers},
    {"gpt", plan_of_gpt},
    {"mlp", plan_of_layers},
    {"linear_pair", plan_of_layers},
    {"sequential_cnn", plan_of_numbered_layers},
};

}  // namespace

TensorPlan tensor_plan(std::string_view model_name, nn::Module& model, Unsharded unsharded) {
  const auto row = std::ranges::find(rows, model_name, &PlanEntry::model);
  TensorPlan plan = row == std::end(rows) ? TensorPlan() : row->plan(model);
  if (plan.empty()) throw make_error(Errc::usage, "model {} has no layers that tensor parallelism divides", model_name);
  if (unsharded == Unsharded::positions) {
    if (model_name != "gpt") throw make_error(Errc::usage, "model {} has no positions to divide", model_name);
    add_positions(model, plan);
  }
  return plan;
}

}  // namespace ddprun

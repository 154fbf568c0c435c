#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/settings.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/config/train_config.h"

// The keys of a train.cfg by section: their units, bounds and help. Each function binds members of TrainConfig; the
// rules that combine keys are validate()'s.
namespace ddprun::trainer {

void bind_model(Settings& s, TrainConfig::Model& m, const plugin::Registry& registry);
void bind_fine_tuning(Settings& s, TrainConfig::Model& m);
void bind_transformers(Settings& s, TrainConfig::Model& m);
void bind_experts(Settings& s, TrainConfig::Model& m);
void bind_data(Settings& s, TrainConfig::Data& d, const plugin::Registry& registry);
void bind_train(Settings& s, TrainConfig::Train& t, const plugin::Registry& registry);
void bind_eval(Settings& s, TrainConfig::Eval& e);
void bind_optim(Settings& s, TrainConfig::Optim& o);
void bind_schedule(Settings& s, TrainConfig::Optim& o);
void bind_dist(Settings& s, TrainConfig::Dist& d);
void bind_parallel(Settings& s, TrainConfig::Parallel& p);
void bind_checkpoint(Settings& s, TrainConfig::Checkpoint& c);
void bind_recovery(Settings& s, TrainConfig::Recovery& r);
void bind_metrics(Settings& s, TrainConfig::Metrics& m);
void bind_distill(Settings& s, TrainConfig::Distill& d);
void bind_tokenize(Settings& s, TrainConfig::Tokenize& t);
void bind_generate(Settings& s, TrainConfig::Generate& g);
void bind_predict(Settings& s, TrainConfig::Predict& p);
void bind_profile(Settings& s, TrainConfig::Profile& p);
void bind_quantize(Settings& s, TrainConfig::Quantize& q);

// Returns the choices of a key.
std::vector<std::string> texts(const std::vector<std::string_view>& names);
// Returns the built-in names and the plugin's. Throws Errc::usage for a name that is in both.
std::vector<std::string> joined(std::vector<std::string> names, const std::vector<std::string>& added);

// Returns the data sets that are no plugin's.
std::vector<std::string_view> built_in_data();

inline constexpr double max_count = 1e9;  // limit of counts that are multiplied with each other

}  // namespace ddprun::trainer

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/trainer/config/train_config.h"

// The settings that exclude each other. Pure functions.
namespace ddprun::trainer {

// A setting, or some of its values.
struct SettingValues {
  std::string_view key;
  std::string_view values;  // such as "= 2 and 3"; empty: any with which the key does something
  std::function<bool(const TrainConfig&)> are_set;
};
// Returns "parallel.zero = 2 and 3".
std::string to_string(const SettingValues& values);

// A setting that does not go with any of some others, and why: a row of the table in docs/parallelism.md.
struct Refusal {
  SettingValues one;
  std::vector<SettingValues> others;
  std::string_view reason;
};
const std::vector<Refusal>& refusals();

// Returns the first of a row's others that is set together with its one; null if none is.
const SettingValues* refused_by(const Refusal& refusal, const TrainConfig& config);

}  // namespace ddprun::trainer

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "worker/trainer/config/checks.h"

namespace ddprun::trainer {
namespace {

void check_rule(const TrainConfig::Optim& o, const Settings& settings) {
  if (o.beta1 >= 1) reject(settings, "optim.beta1", "expected a number below 1");
  if (o.beta2 >= 1) reject(settings, "optim.beta2", "expected a number below 1");
  if (o.alpha >= 1) reject(settings, "optim.alpha", "expected a number below 1");
  if (o.nesterov && o.dampening > 0)
    reject(settings, "optim.dampening", "optim.nesterov = true needs a momentum without dampening");
  if (o.clip_norm > 0 && o.clip_value > 0)
    reject(settings, "optim.clip_value",
           fmt::format("optim.clip_norm = {} is given as well; give one of the two", o.clip_norm));
}

void check_schedule(const TrainConfig::Optim& o, const Settings& settings) {
  check_extents(settings, "optim.milestones", o.milestones, true);
  const auto milestones = parse_extents(o.milestones);
  if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) != milestones.end())
    reject(settings, "optim.milestones", "expected ascending numbers");
  if (o.lr_schedule.name == "multistep" && milestones.empty())
    reject(settings, "optim.schedule", "multistep needs optim.milestones, the steps at which the learning rate falls");
  if (o.lr_schedule.name == "inverse_sqrt" && o.lr_schedule.warmup == 0)
    reject(settings, "optim.schedule", "inverse_sqrt needs an optim.warmup");
  if (o.lr_schedule.name == "plateau" && o.plateau.min_lr > o.lr)
    reject(settings, "optim.min_lr", "expected at most optim.lr");
  if (o.schedule_length > 0 && o.lr_schedule.warmup >= o.schedule_length)
    reject(settings, "optim.warmup", "expected less than optim.schedule_length");
}

}  // namespace

void check_optimizer(const TrainConfig& c, const Settings& settings) {
  check_rule(c.optim, settings);
  check_schedule(c.optim, settings);
  if (c.optim.lr_schedule.name == "plateau" && c.eval.every_epochs == 0 && c.eval.every_steps == 0)
    reject(settings, "optim.schedule", "plateau needs evaluations, but eval.every_epochs and eval.every_steps are 0");
}

}  // namespace ddprun::trainer

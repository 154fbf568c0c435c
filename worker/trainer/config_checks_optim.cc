#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "ddprun/worker/trainer/config_checks.h"
#include "ddprun/worker/trainer/lr_schedule.h"

namespace ddprun::trainer {
namespace {

// Of keys that only make sense with the momentum of some optimizers.
void check_momentum(const TrainConfig::Optim& o, const Settings& settings, std::string_view key,
                    const std::vector<std::string_view>& optimizers) {
  if (std::ranges::count(optimizers, o.name) == 0)
    reject(settings, key,
           fmt::format("optim.name = {} does not have it, only {}", o.name, fmt::join(optimizers, " and ")));
  if (o.momentum == 0) reject(settings, key, "optim.momentum has to be given as well");
}

void check_rule(const TrainConfig::Optim& o, const Settings& settings) {
  if (o.beta1 >= 1) reject(settings, "optim.beta1", "expected a number below 1");
  if (o.beta2 >= 1) reject(settings, "optim.beta2", "expected a number below 1");
  if (o.alpha >= 1) reject(settings, "optim.alpha", "expected a number below 1");
  if (o.nesterov) check_momentum(o, settings, "optim.nesterov", {"sgd", "muon"});
  if (o.dampening > 0) check_momentum(o, settings, "optim.dampening", {"sgd"});
  if (o.nesterov && o.dampening > 0)
    reject(settings, "optim.dampening", "optim.nesterov = true needs a momentum without dampening");
  if (o.clip_norm > 0 && o.clip_value > 0)
    reject(settings, "optim.clip_value",
           fmt::format("optim.clip_norm = {} is given as well; give one of the two", o.clip_norm));
}

void check_schedule(const TrainConfig::Optim& o, const Settings& settings) {
  check_extents(settings, "optim.milestones", o.milestones, o.schedule != "multistep");
  const auto milestones = parse_extents(o.milestones);
  if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) != milestones.end())
    reject(settings, "optim.milestones", "expected ascending numbers");
  if (o.schedule == "inverse_sqrt" && o.warmup == 0)
    reject(settings, "optim.schedule", "inverse_sqrt needs an optim.warmup");
  if (o.schedule == "plateau" && o.min_lr > o.lr) reject(settings, "optim.min_lr", "expected at most optim.lr");
  if (o.schedule_length > 0 && !LrSchedule::has_length(o.schedule))
    reject(settings, "optim.schedule_length", fmt::format("optim.schedule = {} has no end", o.schedule));
  if (o.schedule_length > 0 && o.warmup >= o.schedule_length)
    reject(settings, "optim.warmup", "expected less than optim.schedule_length");
}

}  // namespace

void check_optimizer(const TrainConfig& c, const Settings& settings) {
  check_rule(c.optim, settings);
  check_schedule(c.optim, settings);
  if (c.optim.schedule == "plateau" && c.eval.every_epochs == 0)
    reject(settings, "optim.schedule", "plateau needs evaluations, but eval.every_epochs is 0");
}

}  // namespace ddprun::trainer

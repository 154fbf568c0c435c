#include "worker/trainer/config/recovery_settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

// The hooks with a memory of each rank's own.
constexpr std::array<std::string_view, 5> hooks_with_state{"int4", "topk", "onebit", "powersgd", "batched_powersgd"};

// Returns the hook of the run that has such a memory; empty if there is none.
std::string_view hook_with_state(const TrainConfig& config) {
  const auto found =
      std::ranges::find_if(hooks_with_state, [&](auto name) { return has_hook(config.parallel.hook, name); });
  return found == hooks_with_state.end() ? std::string_view() : *found;
}

}  // namespace

void settle_recovery(Settings& settings, const TrainConfig& config) {
  if (settings.find("recovery.mode")->source.origin != Origin::fallback || hook_with_state(config).empty()) return;
  if (config.parallel.zero > 0) return;  // no rank has the part of another one: the error is restored with the part
  settings.assign("recovery.mode", "restart", settings.find("parallel.hook")->source);
}

bool has_sharded_state(const TrainConfig& config) {
  return config.parallel.zero > 0 || !axes_in_use(config.parallel.ranks).empty();
}

bool fits_mesh(const TrainConfig& config, int ranks) {
  try {
    const auto& p = config.parallel;
    mesh_sizes(mesh_axes(p.ranks), ranks);
    const int ranks_of_gradients = ranks / ranks_of_model(p.ranks);
    if (p.sharded.shard_group > 0)
      mesh_sizes({{"replicate", mesh_rest}, {"shard", p.sharded.shard_group}}, ranks_of_gradients);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::usage) throw;
    return false;
  }
}

std::string why_not_in_process(const TrainConfig& config) {
  const auto& p = config.parallel;
  if (p.strategy != "ddp") return fmt::format("with parallel.strategy = {} ranks have states of their own", p.strategy);
  if (asks_for_cuda(config) || !p.devices.empty()) return "the model is on a device other than the CPU";
  if (config.dist.backend == "mpi" || config.dist.backend == "nccl")
    return fmt::format("with dist.backend = {} a group is not formed again", config.dist.backend);
  if (!p.ddp.broadcast_buffers) return "with parallel.broadcast_buffers = false ranks have buffers of their own";
  if (!p.ignored_parameters.empty()) return "with parallel.ignored_parameters ranks have parameters of their own";
  if (p.balance && p.ranks.on("pipeline") > 1 && !hook_with_state(config).empty())
    return fmt::format("with parallel.balance layers of a pipeline move, but not what parallel.hook = {} keeps of them",
                       hook_with_state(config));
  if (p.ranks.on("expert") > 1 && !hook_with_state(config).empty())
    return fmt::format(
        "with parallel.expert what parallel.hook = {} keeps is of other experts at each of the ranks that would share "
        "it",
        hook_with_state(config));
  if (config.profile.steps > 0) return "profile.steps records the steps of one process group";
  return "";
}

bool recovers_in_process(const TrainConfig& config) {
  return config.recovery.mode == "in_process" && why_not_in_process(config).empty();
}

bool sends_state_ahead(const TrainConfig& config) {
  return config.checkpoint.heal_memory > 0 && recovers_in_process(config) && !has_sharded_state(config) &&
         config.train.ema == 0 && config.optim.offload.empty();
}

bool wants_standby(const TrainConfig& config) {
  return config.recovery.standby && config.model.plugin.empty() && config.optim.offload.empty();
}

std::chrono::milliseconds recovery_bound(const TrainConfig& config) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(config.recovery.wait));
}

}  // namespace ddprun::trainer

#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/reducer/built_in_hooks.h"
#include "ddprun/worker/trainer/config_checks.h"
#include "ddprun/worker/trainer/model_devices.h"

namespace ddprun::trainer {
namespace {

// Not choices of the setting: a name that other programs accept deserves the reason.
void check_backend(const Settings& settings, const std::string& name) {
  if (name == "nccl")
    reject(settings, "dist.backend",
           "NCCL exchanges the memory of GPUs, and tensors are in host memory so far: use auto");
  if (name != "auto" && name != "gloo" && name != "shm" && name != "hierarchical")
    reject(settings, "dist.backend", "expected one of auto, gloo, shm, hierarchical");
}

void check_hook_name(const Settings& settings, const std::string& name) {
  try {
    check_hook(name);
  } catch (const Error& e) {
    reject(settings, "parallel.hook", e.what());
  }
}

void check_devices(const TrainConfig::Parallel& p, const Settings& settings) {
  try {
    devices_of(p);
  } catch (const Error& e) {
    reject(settings, "parallel.devices", e.what());
  }
  if (p.devices.empty() && (p.strategy != "ddp" || !p.split.empty()))
    reject(settings, p.split.empty() ? "parallel.strategy" : "parallel.split",
           "parallel.devices has to be given as well");
  if (p.strategy != "data_parallel") return;
  if (!p.split.empty() || p.zero > 0)
    reject(settings, p.zero > 0 ? "parallel.zero" : "parallel.split", "data_parallel has whole replicas");
  if (devices_of(p).front() != Device{})
    reject(settings, "parallel.devices", "data_parallel begins with cpu:0, where batches and the model are");
}

void check_division(const TrainConfig::Parallel& p, const std::string& optimizer, const Settings& settings) {
  if (p.shard_group > 0 && p.zero < 2)
    reject(settings, "parallel.shard_group", "parallel.zero = 2 or 3 has to be given as well");
  if (p.zero > 1 && !p.devices.empty())
    reject(settings, "parallel.devices", "parallel.zero = 2 and 3 have one device a rank");
  if (p.zero == 0) return;
  if (p.hook != "allreduce") reject(settings, "parallel.hook", "parallel.zero averages gradients in its own way");
  if (p.find_unused_parameters || p.static_graph || !p.ignored_parameters.empty())
    reject(settings, "parallel.zero",
           "updates are not divided with parallel.find_unused_parameters, static_graph or ignored_parameters");
  if (!optim::is_elementwise(optimizer))
    reject(settings, "parallel.zero",
           fmt::format("updates are divided by elements, and optim.name = {} needs whole tensors", optimizer));
}

}  // namespace

void check_parallel(const TrainConfig& c, const Settings& settings) {
  const TrainConfig::Parallel& p = c.parallel;
  check_backend(settings, c.dist.backend);
  if (c.dist.staging_kb % 4 != 0) reject(settings, "dist.staging_kb", "expected a multiple of 4");
  check_hook_name(settings, p.hook);
  if (!p.param_to_hook_all_reduce.empty() && p.delay_all_reduce_named_params.empty())
    reject(settings, "parallel.param_to_hook_all_reduce",
           "parallel.delay_all_reduce_named_params has to be given as well");
  check_devices(p, settings);
  check_division(p, c.optim.name, settings);
}

}  // namespace ddprun::trainer

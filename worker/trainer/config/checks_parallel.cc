#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/checks.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/refusals.h"

namespace ddprun::trainer {
namespace {

// These names are not choices of the setting: a name that other programs accept deserves the reason.
void check_backend(const TrainConfig& c, const Settings& settings) {
  const auto& name = c.dist.backend;
  if (name == "nccl" && asks_for_cuda(c)) return;
  if (name == "nccl")
    reject(settings, "dist.backend",
           "NCCL exchanges only the memory of GPUs: it needs train.device = cuda, or use auto");
  if (name != "auto" && name != "gloo" && name != "shm" && name != "hierarchical" && name != "mpi")
    reject(settings, "dist.backend", "expected one of auto, gloo, shm, hierarchical, mpi, nccl");
}

void check_hook_name(const Settings& settings, const std::string& name) {
  try {
    check_hook(name);
  } catch (const Error& e) {
    reject(settings, "parallel.hook", e.what());
  }
}

// A CUDA device may be named only once, since it has one thread.
void check_device_names(const TrainConfig::Parallel& p, const Settings& settings) {
  std::vector<Device> devices;
  try {
    devices = devices_of(p);
  } catch (const Error& e) {
    reject(settings, "parallel.devices", e.what());
  }
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    if (device->type != devices.front().type)
      reject(settings, "parallel.devices", "devices are all of the CPU or all of CUDA");
    if (device->type == DeviceType::cuda && std::find(devices.begin(), device, *device) != device)
      reject(settings, "parallel.devices", fmt::format("{} is named twice", to_string(*device)));
  }
}

// The teacher of a pipeline over CUDA devices is on the first of them.
void check_teacher(const TrainConfig& c, const Settings& settings) {
  if (c.train.task == "distillation" && c.parallel.micro_batches > 0)
    reject(settings, "train.task", "the teacher and the last stage of a pipeline are on different CUDA devices");
}

void check_train_device(const TrainConfig& c, const Settings& settings) {
  const bool names_cuda = names_cuda_devices(c.parallel);
  if (names_cuda && c.train.device == "cpu")
    reject(settings, "train.device", fmt::format("parallel.devices = {} are CUDA devices", c.parallel.devices));
  if (c.train.device == "cuda" && !c.parallel.devices.empty() && !names_cuda)
    reject(settings, "parallel.devices", "train.device = cuda takes CUDA devices, such as cuda:0 cuda:1");
  if (is_divided_among_cuda_devices(c.parallel)) check_teacher(c, settings);
}

void check_devices(const TrainConfig::Parallel& p, const Settings& settings) {
  if (p.strategy != "data_parallel") return;
  if (devices_of(p).empty()) reject(settings, "parallel.strategy", "parallel.devices has to be given as well");
  if (devices_of(p).front() != Device{} && !names_cuda_devices(p))
    reject(settings, "parallel.devices", "data_parallel begins with cpu:0, where batches and the model are");
}

// Refuses fragments for which a period has no steps.
void check_local_sgd(const TrainConfig::Parallel& p, const Settings& settings) {
  if (p.local_sgd.fragments > p.local_sgd.period)
    reject(settings, "parallel.fragments",
           fmt::format("parallel.local_sgd_period = {} has no step for each", p.local_sgd.period));
  if (p.local_sgd.fragment_sync_delay >= p.local_sgd.period)
    reject(settings, "parallel.fragment_sync_delay",
           fmt::format("it has to be less than parallel.local_sgd_period = {}", p.local_sgd.period));
}

void check_pipeline(const TrainConfig& c, const Settings& settings) {
  const auto& p = c.parallel;
  if ((p.schedule == "interleaved") != (p.virtual_stages > 1))
    reject(settings, "parallel.virtual_stages", "the schedule interleaved has 2 or more, and the others 1");
  if (p.ranks.on("pipeline") == 1 && !is_built_in(c.model))
    reject(settings, "parallel.devices", "a pipeline over devices is made only of the built-in models");
}

// These divide the samples of a rank's step, as train.accumulate does.
void check_accumulation(const TrainConfig& c, const Settings& settings) {
  if (c.train.accumulate == 1) return;
  for (const auto& [key, on] : {std::pair("parallel.micro_batches", c.parallel.micro_batches > 0),
                                std::pair("train.shards", c.train.shards > 0)})
    if (on) reject(settings, "train.accumulate", fmt::format("{} divides the samples of a step", key));
}

// Returns the setting with its value if it was given, as others may ask for the same by their own.
std::string shown(const SettingValues& values, const Settings& settings) {
  const auto& setting = *settings.find(values.key);
  if (setting.source.origin == Origin::fallback) return to_string(values);
  return fmt::format("{} = {}", values.key, setting.print());
}

// Refuses settings that exclude each other.
void check_refusals(const TrainConfig& c, const Settings& settings) {
  for (const Refusal& refusal : refusals())
    if (const auto* other = refused_by(refusal, c))
      reject(settings, other->key,
             fmt::format("it does not go with {}: {}", shown(refusal.one, settings), refusal.reason));
}

}  // namespace

void check_parallel(const TrainConfig& c, const Settings& settings) {
  const TrainConfig::Parallel& p = c.parallel;
  check_device_names(p, settings);
  check_backend(c, settings);
  if (c.dist.staging_kb % 4 != 0) reject(settings, "dist.staging_kb", "expected a multiple of 4");
  check_hook_name(settings, p.hook);
  check_devices(p, settings);
  check_train_device(c, settings);
  check_refusals(c, settings);
  if (p.strategy == "local_sgd") check_local_sgd(p, settings);
  if (p.micro_batches > 0) check_pipeline(c, settings);
  check_accumulation(c, settings);
  for (const ModelAxis* axis : axes_in_use(p.ranks))
    if (axis->check) axis->check(c, settings);
}

}  // namespace ddprun::trainer

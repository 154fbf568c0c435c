#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/error.h"
#include "worker/comm/init.h"
#include "worker/tensor/device.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Returns dist.timeout.
std::chrono::milliseconds group_timeout(const TrainConfig& config);

// The process group of a job, as its settings describe it. Throws Errc::usage naming the key whose size does not fit
// the number of ranks.
// device: the one on which this rank trains.
InitOptions init_options(const TrainConfig& config, const WorkerEnv& place, Device device = {});

// Returns a rank's coordinates in the mesh of its job as text: "pipeline 1, data 0, tensor 1"; empty if data
// parallelism is the only axis. Throws what init_options() throws.
std::string mesh_label(const TrainConfig& config, const WorkerEnv& place);

// Runs function; an Errc::usage that it throws then names the key.
template <class Function>
auto naming_key(std::string_view key, int value, Function function) {
  try {
    return function();
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    throw make_error(e.code(), "{} = {}: {}", key, value, e.what());
  }
}

// The variant for functions that fit ranks into mesh_axes(): names the key of the first axis besides "data".
template <class Function>
auto naming_mesh_key(const TrainConfig::Parallel& parallel, Function function) {
  for (const MeshAxis& axis : mesh_axes(parallel.ranks))
    if (axis.size != mesh_rest) return naming_key(model_axis(axis.name).key, axis.size, function);
  return function();
}

}  // namespace ddprun::trainer

#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "worker/comm/init.h"
#include "worker/parallel/mesh/device_mesh.h"
#include "worker/tensor/device.h"
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

// Returns the axes of a job's ranks: "data"; before it "pipeline" with parallel.pipeline, and after it "expert",
// "context" or "tensor", each with its key of [parallel].
std::vector<MeshAxis> mesh_axes(const TrainConfig::Parallel& parallel);

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

// The variant for functions that fit ranks into mesh_axes(): names parallel.pipeline, parallel.expert,
// parallel.context, or parallel.tensor.
template <class Function>
auto naming_mesh_key(const TrainConfig::Parallel& parallel, Function function) {
  if (parallel.pipeline > 1) return naming_key("parallel.pipeline", parallel.pipeline, function);
  if (parallel.expert > 1) return naming_key("parallel.expert", parallel.expert, function);
  if (parallel.context > 1) return naming_key("parallel.context", parallel.context, function);
  return naming_key("parallel.tensor", parallel.tensor, function);
}

}  // namespace ddprun::trainer

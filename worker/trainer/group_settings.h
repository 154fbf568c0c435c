#pragma once

#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/parallel/device_mesh.h"
#include "ddprun/worker/trainer/train_config.h"

namespace ddprun::trainer {

// The process group of a job, as its settings describe it. Throws Errc::usage naming the key whose size does not fit
// the number of ranks.
InitOptions init_options(const TrainConfig& config, const WorkerEnv& place);

// The dimensions of a job's ranks: "data", between "pipeline" and "tensor" where there is parallel.pipeline or
// parallel.tensor.
std::vector<MeshDimension> mesh_dimensions(const TrainConfig::Parallel& parallel);
// Runs function; an Errc::usage that it throws then names parallel.pipeline, or parallel.tensor.
template <class Function>
auto naming_key(const TrainConfig::Parallel& parallel, Function function) {
  try {
    return function();
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    if (parallel.pipeline > 1) throw make_error(e.code(), "parallel.pipeline = {}: {}", parallel.pipeline, e.what());
    throw make_error(e.code(), "parallel.tensor = {}: {}", parallel.tensor, e.what());
  }
}

}  // namespace ddprun::trainer

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

// The dimensions of a job's ranks: "data"; before it "pipeline" with parallel.pipeline, and behind it "tensor" with
// parallel.tensor.
std::vector<MeshDimension> mesh_dimensions(const TrainConfig::Parallel& parallel);
// Runs function; an Errc::usage that it throws then names parallel.tensor or parallel.pipeline.
template <class Function>
auto naming_mesh_key(const TrainConfig::Parallel& parallel, Function function) {
  try {
    return function();
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    const bool is_pipeline = parallel.pipeline > 1;
    throw make_error(e.code(), "parallel.{} = {}: {}", is_pipeline ? "pipeline" : "tensor",
                     is_pipeline ? parallel.pipeline : parallel.tensor, e.what());
  }
}

}  // namespace ddprun::trainer

#pragma once

#include <string_view>
#include <vector>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/parallel/device_mesh.h"
#include "ddprun/worker/trainer/train_config.h"

namespace ddprun::trainer {

// The process group of a job, as its settings describe it. Throws Errc::usage naming the key whose size does not fit
// the number of ranks.
InitOptions init_options(const TrainConfig& config, const WorkerEnv& place);

// The dimensions of a job's ranks: "data", and "tensor" with parallel.tensor.
std::vector<MeshDimension> mesh_dimensions(const TrainConfig::Parallel& parallel);
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

}  // namespace ddprun::trainer

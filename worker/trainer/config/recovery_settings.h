#pragma once

#include <chrono>
#include <string>

#include "ddprun/worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Why the run of these settings cannot go on in its processes when a rank is lost; empty: it can. It needs the whole
// state at every rank.
std::string why_not_in_process(const TrainConfig& config);

// recovery.mode = in_process, as far as why_not_in_process() allows it.
bool recovers_in_process(const TrainConfig& config);

// recovery.wait
std::chrono::milliseconds recovery_bound(const TrainConfig& config);

}  // namespace ddprun::trainer

#pragma once

#include <string>

#include "common/error.h"
#include "worker/comm/launch_env.h"
#include "worker/tensor/device_memory.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Returns advice to make a job take less of a device's memory: the settings that help most with what holds most of it,
// or wants more, such as "a smaller train.batch_size with a larger train.accumulate"; at most three, joined by " or ".
std::string memory_advice(const OutOfDeviceMemory& error, const TrainConfig& config);

// Returns whether it ends a rank on a CUDA device by itself: neither another rank's error nor the user's mistake.
bool is_device_fault(const Error& error, Device device);
// Returns the error that ends a rank which trains on a device, with its rank and host, and with memory_advice() if
// memory was short; another error stays as it is.
Error fault_of_rank(const Error& error, const TrainConfig& config, const WorkerEnv& place, Device device);

}  // namespace ddprun::trainer

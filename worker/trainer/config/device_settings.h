#pragma once

#include <string>
#include <vector>

#include "worker/tensor/device.h"
#include "worker/trainer/config/train_config.h"

// The devices that the settings name or ask for: train.device and parallel.devices. Pure functions.
namespace ddprun::trainer {

// Returns parallel.devices. Throws Errc::usage for a name that is no device's.
std::vector<Device> devices_of(const TrainConfig::Parallel& config);
// Returns whether parallel.devices names CUDA devices. Throws what devices_of() throws.
bool names_cuda_devices(const TrainConfig::Parallel& config);
// Returns whether a rank's model has parts on several of them.
bool is_divided_among_cuda_devices(const TrainConfig::Parallel& config);

// Returns whether the settings ask for CUDA devices: train.device = cuda, or parallel.devices.
bool asks_for_cuda(const TrainConfig& config);
// Returns "cuda:0", or all of parallel.devices: "cuda:0, cuda:1". device: train_device().
std::string device_names(const TrainConfig& config, Device device);
// Returns whether a job with these settings trains on CUDA devices, if it is asked for: see refusals.h.
bool runs_on_devices(const TrainConfig& config);

}  // namespace ddprun::trainer

#pragma once

#include <string>

#include "ddprun/worker/comm/launch_env.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/device.h"
#include "ddprun/worker/trainer/train_config.h"

// The device on which a rank trains: train.device.
namespace ddprun::trainer {

// The first setting with which a job does not train on a CUDA device, and its value: "parallel.tensor = 2"; empty where
// there is none.
std::string setting_without_devices(const TrainConfig& config);

// Whether the settings ask for CUDA devices: train.device = cuda, or parallel.devices.
bool asks_for_cuda(const TrainConfig& config);
// "cuda:0", or all of parallel.devices: "cuda:0, cuda:1". device: train_device().
std::string device_names(const TrainConfig& config, Device device);

// Of parallel.devices = cuda:0 cuda:1 the first. Of train.device = cuda the device of LOCAL_RANK, among those that
// CUDA_VISIBLE_DEVICES leaves; ranks beyond their number share them. Of auto the same where there is a device, its
// module and no setting that it lacks, else the host. Throws Errc::unsupported where cuda is asked for and there is no
// module or device, saying what was looked for; Errc::usage where parallel.devices names a device that does not exist,
// or the job has several processes.
Device train_device(const TrainConfig& config, const WorkerEnv& place);

// Lets the device compute in TF32 where train.tf32 says so. Throws Errc::usage for a device that cannot.
void apply_tf32(const TrainConfig& config, Device device);

// The CUDA device of a model's parameters; the host where they have none, whatever parallel.devices names.
Device device_of(const nn::Module& model);

}  // namespace ddprun::trainer

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

// Of train.device = cuda the device of LOCAL_RANK, among those that CUDA_VISIBLE_DEVICES leaves; ranks beyond their
// number share them. Of auto the same where there is a device, its module and no setting that it lacks, else the host.
// Throws Errc::unsupported where cuda is asked for and there is no module or device, saying what was looked for.
Device train_device(const TrainConfig& config, const WorkerEnv& place);

// The CUDA device of a model's parameters; the host where they have none, whatever parallel.devices names.
Device device_of(const nn::Module& model);

}  // namespace ddprun::trainer

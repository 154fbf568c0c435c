#pragma once

#include "worker/comm/launch_env.h"
#include "worker/nn/module.h"
#include "worker/tensor/device.h"
#include "worker/trainer/config/train_config.h"

// The device on which a rank trains: train.device.
namespace ddprun::trainer {

// With parallel.devices = cuda:0 cuda:1 it is the first. With train.device = cuda it is the device of LOCAL_RANK, among
// those that CUDA_VISIBLE_DEVICES leaves; ranks beyond their number share them. With auto it is the same if there is a
// device, its module and no setting that it lacks, otherwise the host. Throws Errc::unsupported if cuda is asked for
// and there is no module or device, saying what was looked for; Errc::usage if parallel.devices names a device that
// does not exist, or the job has several processes.
Device train_device(const TrainConfig& config, const WorkerEnv& place);

// Lets the device compute in TF32 if train.tf32 says so. Throws Errc::usage for a device that cannot.
void apply_tf32(const TrainConfig& config, Device device);

// Returns the CUDA device of a model's parameters; the host if they have none, whatever parallel.devices names.
Device device_of(const nn::Module& model);

}  // namespace ddprun::trainer

#pragma once

#include <memory>

#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/data/data_parallel.h"
#include "worker/tasks/task.h"
#include "worker/tensor/device.h"
#include "worker/trainer/config/train_config.h"

// The devices of one rank: parallel.devices, a part of the model on each or a replica.
namespace ddprun::trainer {

// With parallel.strategy = ddp and several devices: places the modules of the model on them, from those named in
// parallel.split on or so that their times, measured on the host, are about equal; a pipeline places its stages itself.
// Otherwise the model goes to the rank's device, if that is a CUDA device. Throws Errc::usage naming key and value.
void place_model(const TrainConfig& config, nn::Module& model, const data::SampleLayout& layout, Device device = {});

// Returns the inputs of so many samples, all zeros, by which the layers of a model are measured.
Tensor empty_batch(const data::SampleLayout& layout, std::int64_t samples);

// With parallel.strategy = data_parallel: makes the replicas; otherwise null.
std::unique_ptr<DataParallel> make_data_parallel(const TrainConfig& config, nn::Module& model,
                                                 const data::SampleLayout& layout, const tasks::Task& task);

}  // namespace ddprun::trainer

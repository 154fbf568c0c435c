#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/pipeline/device_pipeline.h"
#include "worker/parallel/forms/pipeline/pipelined_data_parallel.h"
#include "worker/parallel/forms/pipeline/stage.h"
#include "worker/parallel/forms/pipeline/stage_balancer.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"

// Pipelines as the settings describe them: over ranks (parallel.pipeline), or over the devices of each
// (parallel.devices with parallel.micro_batches).
namespace ddprun::trainer {

bool has_device_pipeline(const TrainConfig::Parallel& config);

// Returns the times of layers for such an input, for a pipeline that is cut by them, or balanced; otherwise none.
// seconds: those that this rank knows from an earlier group, or empty. If some rank knows them, those of the first such
// rank count, and nothing is measured; otherwise all ranks measure, and those of rank 0 count. Set at all ranks.
// Collective.
std::vector<pipeline::Layer> measured_layers(const TrainConfig& config, nn::Module& model, const Tensor& input,
                                             std::vector<double>& seconds, ProcessGroup& all);

// With parallel.pipeline: makes the stages of this rank, cut at parallel.split or by the times of layers. Collective.
// Throws Errc::usage naming key and value.
std::unique_ptr<pipeline::PipelinedDataParallel> make_rank_pipeline(const TrainConfig& config, nn::Module& model,
                                                                    const std::vector<pipeline::Layer>& layers,
                                                                    ProcessGroup& stages, ProcessGroup& replicas,
                                                                    pipeline::StageParallelism of_stages);
// With parallel.balance as well: makes the balancer of its layers; otherwise none. Throws Errc::usage as above.
std::optional<pipeline::StageBalancer> make_stage_balancer(const TrainConfig& config, nn::Module& model,
                                                           const std::vector<pipeline::Layer>& layers);
// With several devices and micro-batches: makes their pipeline; otherwise null. Moves the model's parameters.
std::unique_ptr<pipeline::DevicePipeline> make_device_pipeline(const TrainConfig& config, nn::Module& model,
                                                               const data::SampleLayout& layout,
                                                               const tasks::Task& task, ProcessGroup& group);

// The facts of a step that its passes need besides their batches.
struct StepPasses {
  std::uint64_t seed = 0;
  std::vector<double> loss_factors;  // by batch: see nn::LossFactorScope
  // Gets a batch's number and its loss, returns where backward() begins.
  std::function<Variable(std::size_t batch, const tasks::WeightedLoss& loss)> add;
};
// Returns what stages compute of these batches.
pipeline::StepFunctions step_functions(const tasks::Task& task, const std::vector<data::Batch>& batches,
                                       const StepPasses& passes);
// Adds a batch to the sums of an evaluation, at the rank of the last stage.
void add_to(std::span<double> sums, const tasks::Task& task, const data::Batch& batch,
            pipeline::PipelinedDataParallel& ranks);

}  // namespace ddprun::trainer

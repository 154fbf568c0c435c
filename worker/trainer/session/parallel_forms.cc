#include "worker/trainer/session/parallel_forms.h"

#include <utility>

#include "common/error.h"
#include "worker/data/tokens.h"
#include "worker/parallel/forms/tensor/cross_entropy.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/session/data_parallel_form.h"
#include "worker/trainer/state/model_devices.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

// Throws if the ranks or devices of an earlier session had parts of the state: they are lost with that session.
void check_whole(const TrainConfig::Parallel& p, const TrainState& state) {
  if (!state.optimizer || state.run.step == 0) return;
  for (const auto& [key, on] : {std::pair("parallel.tensor", p.tensor > 1), std::pair("parallel.expert", p.expert > 1),
                                std::pair("parallel.zero", p.zero > 0), std::pair("parallel.pipeline", p.pipeline > 1),
                                std::pair("parallel.micro_batches", p.micro_batches > 0)})
    if (on)
      throw make_error(Errc::unsupported, "{}: a run continues in another process group only from a checkpoint", key);
}

DeviceMesh make_mesh(const FormsContext& context) {
  const auto& p = context.config.parallel;
  check_whole(p, context.state);
  return naming_mesh_key(p, [&] { return DeviceMesh(context.group, mesh_axes(p)); });
}

std::unique_ptr<ContextParallel> make_context_parallel(const TrainConfig& c, nn::Module& model,
                                                       const DeviceMesh& mesh) {
  if (c.parallel.context == 1) return nullptr;
  return std::make_unique<ContextParallel>(model, mesh.group("context"));
}

std::unique_ptr<TensorParallel> make_tensor_parallel(const TrainConfig& c, TrainState& state, const DeviceMesh& mesh) {
  if (c.parallel.tensor == 1) return nullptr;
  return naming_mesh_key(c.parallel, [&] {
    return std::make_unique<TensorParallel>(
        *state.model,
        tensor_plan(c.model.name, *state.model, c.parallel.sequence ? Unsharded::positions : Unsharded::whole),
        mesh.group("tensor"));
  });
}

std::unique_ptr<ExpertParallel> make_expert_parallel(const TrainConfig& c, TrainState& state, const DeviceMesh& mesh,
                                                     const MeshGroups& groups) {
  if (c.parallel.expert == 1) return nullptr;
  return naming_mesh_key(c.parallel, [&] {
    return std::make_unique<ExpertParallel>(*state.model, mesh.group("expert"), groups.gradients);
  });
}

std::unique_ptr<tasks::Task> task_of_divided_scores(const tasks::Task& task, TensorParallel* tensor) {
  if (!tensor || !tensor->shards_scores()) return nullptr;
  return task.with_cross_entropy([&group = tensor->group()](const Variable& scores, const Tensor& targets) {
    return vocabulary_parallel_cross_entropy(scores, targets, group, data::ignored_target);
  });
}

std::vector<pipeline::Layer> layers_of(const FormsContext& of, const ContextParallel* context) {
  if (of.config.parallel.pipeline == 1) return {};
  const Tensor input = empty_batch(of.layout, micro_batch_size(of.config, of.group.size()));
  return measured_layers(of.config, *of.state.model, context ? context->own_positions(input) : input,
                         of.state.layer_seconds, of.group);
}

std::unique_ptr<pipeline::PipelinedDataParallel> make_pipelined(const FormsContext& of,
                                                                const std::vector<pipeline::Layer>& layers,
                                                                const MeshGroups& groups,
                                                                pipeline::StageParallelism of_stages) {
  if (of.config.parallel.pipeline == 1) return nullptr;
  return make_rank_pipeline(of.config, *of.state.model, layers, *groups.stages, groups.gradients_of_experts,
                            std::move(of_stages));
}

std::unique_ptr<DataParallelism> make_of_passes(const FormsContext& of, const MeshGroups& groups,
                                                const pipeline::StageParallelism& of_model) {
  if (of.config.parallel.pipeline > 1) return nullptr;
  return of_model.make(*of.state.model, groups.gradients, {});
}

}  // namespace

ParallelForms::ParallelForms(const FormsContext& of)
    : mesh(make_mesh(of)),
      groups(mesh),
      context(make_context_parallel(of.config, *of.state.model, mesh)),
      tensor(make_tensor_parallel(of.config, of.state, mesh)),
      experts(make_expert_parallel(of.config, of.state, mesh, groups)),
      own_task(task_of_divided_scores(of.task, tensor.get())),
      task(own_task ? *own_task : of.task),
      device_pipeline(make_device_pipeline(of.config, *of.state.model, of.layout, task, of.group)),
      layers(layers_of(of, context.get())),
      stage_balancer(make_stage_balancer(of.config, *of.state.model, layers)),
      gate(UpdateGate::make(of.config, device_of(*of.state.model), groups.gradients)),
      pipelined(make_pipelined(of, layers, groups, data_form(of))),
      of_passes(make_of_passes(of, groups, data_form(of))),
      parallelism(pipelined ? *pipelined : *of_passes),
      replicas(make_data_parallel(of.config, *of.state.model, of.layout, task)),
      device_(names_cuda_devices(of.config.parallel) ? devices_of(of.config.parallel).front()
                                                     : device_of(*of.state.model)),
      targets_device_(device_pipeline && device_ != Device{} ? devices_of(of.config.parallel).back() : device_) {
  if (of.config.parallel.sync_batch_norm) sync_batch_norm.emplace(*of.state.model, groups.samples);
}

sharding::ShardsOnAxes ParallelForms::dimension_shards() const {
  sharding::ShardsOnAxes all;
  if (experts) all.push_back(&experts->shards());
  if (tensor) all.push_back(&tensor->shards());
  return all;
}

std::chrono::nanoseconds ParallelForms::waited() const {
  std::chrono::nanoseconds sum = parallelism.waited();
  if (tensor) sum += tensor->group().waited();
  if (context) sum += context->group().waited();
  if (experts) sum += experts->group().waited();
  return sum;
}

std::uint64_t ParallelForms::bytes_sent() const {
  return mesh.bytes_sent() + parallelism.bytes_sent();
}

pipeline::StageParallelism ParallelForms::data_form(const FormsContext& of) {
  return data_parallel_form(of.config, of.state, groups, tensor.get(), experts.get(), gate.get(), shard_sums);
}

}  // namespace ddprun::trainer

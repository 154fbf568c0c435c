#include "worker/trainer/session/parallel_forms.h"

#include <string_view>
#include <utility>

#include "common/error.h"
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
  const auto check = [](std::string_view key, bool is_sharded) {
    if (is_sharded)
      throw make_error(Errc::unsupported, "{}: a run continues in another process group only from a checkpoint", key);
  };
  for (const ModelAxis* axis : axes_in_use(p.ranks)) check(axis->key, axis->shards_state);
  check("parallel.zero", p.zero > 0);
  check("parallel.micro_batches", p.micro_batches > 0);
}

DeviceMesh make_mesh(const FormsContext& context) {
  const auto& p = context.config.parallel;
  check_whole(p, context.state);
  return naming_mesh_key(p, [&] { return DeviceMesh(context.group, mesh_axes(p.ranks)); });
}

std::vector<pipeline::Layer> layers_of(const FormsContext& of, const AxisForms& axes) {
  if (of.config.parallel.ranks.on("pipeline") == 1) return {};
  const Tensor input = empty_batch(of.layout, micro_batch_size(of.config, of.group.size()));
  return measured_layers(of.config, *of.state.model, axes.own_positions(input), of.state.layer_seconds, of.group);
}

std::unique_ptr<pipeline::PipelinedDataParallel> make_pipelined(const FormsContext& of,
                                                                const std::vector<pipeline::Layer>& layers,
                                                                const MeshGroups& groups,
                                                                pipeline::StageParallelism of_stages) {
  if (of.config.parallel.ranks.on("pipeline") == 1) return nullptr;
  return make_rank_pipeline(of.config, *of.state.model, layers, *groups.stages, groups.gradients_of_experts,
                            std::move(of_stages));
}

std::unique_ptr<DataParallelism> make_of_passes(const FormsContext& of, const MeshGroups& groups,
                                                const pipeline::StageParallelism& of_model) {
  if (of.config.parallel.ranks.on("pipeline") > 1) return nullptr;
  return of_model.make(*of.state.model, groups.gradients, {});
}

}  // namespace

ParallelForms::ParallelForms(const FormsContext& of)
    : mesh(make_mesh(of)),
      groups(mesh),
      axes(of.config, *of.state.model, mesh, groups),
      own_task(axes.task_of_own_scores(of.task)),
      task(own_task ? *own_task : of.task),
      device_pipeline(make_device_pipeline(of.config, *of.state.model, of.layout, task, of.group)),
      layers(layers_of(of, axes)),
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

std::chrono::nanoseconds ParallelForms::waited() const {
  return parallelism.waited() + axes.waited();
}

std::uint64_t ParallelForms::bytes_sent() const {
  return mesh.bytes_sent() + parallelism.bytes_sent();
}

pipeline::StageParallelism ParallelForms::data_form(const FormsContext& of) {
  return data_parallel_form(of.config, of.state, groups, axes, gate.get(), shard_sums);
}

}  // namespace ddprun::trainer

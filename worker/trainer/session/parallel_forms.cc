#include "worker/trainer/session/parallel_forms.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/data/tokens.h"
#include "worker/parallel/device_cast_hook.h"
#include "worker/parallel/distributed_data_parallel.h"
#include "worker/parallel/expert/expert_data_parallel.h"
#include "worker/parallel/host_hook.h"
#include "worker/parallel/local_sgd/local_sgd.h"
#include "worker/parallel/sharded_data_parallel.h"
#include "worker/parallel/sole_rank.h"
#include "worker/parallel/tensor/cross_entropy.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/state/model_devices.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

DdpOptions ddp_options(const TrainConfig& c) {
  constexpr double bytes_per_mib = 1024.0 * 1024.0;
  DdpOptions options;
  options.limits.bytes = static_cast<std::size_t>(c.dist.bucket_mb * bytes_per_mib);
  options.limits.first_bytes = std::min(options.limits.first_bytes, options.limits.bytes);
  const auto& p = c.parallel;
  options.find_unused_parameters = p.find_unused_parameters;
  options.static_graph = p.static_graph;
  options.broadcast_buffers = p.broadcast_buffers;
  options.ignored_parameters = parse_names(p.ignored_parameters);
  options.delay_all_reduce_named_params = parse_names(p.delay_all_reduce_named_params);
  options.param_to_hook_all_reduce = p.param_to_hook_all_reduce;
  options.shard_gradients = c.parallel.zero > 0;
  return options;
}

ShardedOptions sharded_options(const TrainConfig& c) {
  const DdpOptions options = ddp_options(c);
  return {.limits = options.limits,
          .shard_parameters = c.parallel.zero == 3,
          .reshard_after_forward = c.parallel.reshard_after_forward,
          .shard_group = c.parallel.shard_group,
          .broadcast_buffers = options.broadcast_buffers};
}

void check_shard_group(const TrainConfig::Parallel& p, const ProcessGroup& group) {
  if (p.shard_group == 0) return;
  naming_key("parallel.shard_group", p.shard_group, [&] {
    return mesh_sizes({{"replicate", mesh_rest}, {"shard", p.shard_group}}, group.size());
  });
}

std::unique_ptr<CommHook> comm_hook(const TrainConfig& c, ProcessGroup& group, Device device) {
  const auto& p = c.parallel;
  const bool on_device = device.type == DeviceType::cuda;
  if (on_device && (p.hook == "fp16" || p.hook == "bf16"))
    return make_device_cast_hook(p.hook == "fp16" ? DType::float16 : DType::bfloat16, group);
  auto hook = make_hook(p.hook, group,
                        {.power_sgd = {.matrix_approximation_rank = p.matrix_approximation_rank,
                                       .start_powerSGD_iter = p.start_powerSGD_iter,
                                       .use_error_feedback = p.use_error_feedback,
                                       .warm_start = p.warm_start,
                                       .min_compression_rate = p.min_compression_rate,
                                       .random_seed = static_cast<std::uint64_t>(c.train.seed)},
                         .topk_fraction = p.topk_fraction,
                         .one_bit = {.beta1 = c.optim.beta1, .beta2 = c.optim.beta2, .freeze_step = p.freeze_step},
                         .own_part = p.zero > 0});
  return on_device ? make_host_hook(std::move(hook), group) : std::move(hook);
}

// The options of DistributedDataParallel that name parameters are keys of [parallel] of the same names.
std::unique_ptr<DistributedDataParallel> make_ddp(const TrainConfig& c, nn::Module& model, ProcessGroup& group,
                                                  const StageTensors& stages = {}) {
  DdpOptions options = ddp_options(c);
  options.stages = stages;
  try {
    auto ddp = std::make_unique<DistributedDataParallel>(model, group, options);
    if (c.parallel.hook != "allreduce") ddp->register_comm_hook(comm_hook(c, group, device_of(model)));
    return ddp;
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    throw make_error(Errc::usage, "parallel.{}", e.what());
  }
}

std::unique_ptr<DataParallelism> make_expert_data_parallel(const TrainConfig& c, nn::Module& model,
                                                           const ExpertParallel& experts, const MeshGroups& groups,
                                                           const DdpOptions& options) {
  ExpertDataParallel::MakeHook make_hook;
  if (c.parallel.hook != "allreduce")
    make_hook = [&](ProcessGroup& group) { return comm_hook(c, group, device_of(model)); };
  return std::make_unique<ExpertDataParallel>(model, experts, groups.gradients_of_experts, groups.gradients, options,
                                              make_hook);
}

// The data parallelism of stages whose experts are divided.
pipeline::StageParallelism stages_with_experts(const TrainConfig& c, const ExpertParallel& experts,
                                               const MeshGroups& groups) {
  const auto options_of = [options = ddp_options(c)](const StageTensors& stages) {
    DdpOptions own = options;
    own.stages = stages;
    return own;
  };
  return {.make =
              [&, options_of](nn::Module& model, ProcessGroup&, const StageTensors& stages) {
                return make_expert_data_parallel(c, model, experts, groups, options_of(stages));
              },
          .buckets =
              [&experts, options_of](nn::Module& model, const StageTensors& stages) {
                return ExpertDataParallel::buckets(model, experts, options_of(stages));
              },
          .own_buffers = !ddp_options(c).broadcast_buffers};
}

std::unique_ptr<ShardSumHook> make_shard_sums(const TrainConfig& c, TrainState& state, ProcessGroup& group) {
  if (const auto buffers = state.model->named_buffers(); !buffers.empty())
    throw make_error(
        Errc::usage,
        "train.shards = {}: the model has the buffer {}, and buffers that change in forward passes depend on "
        "which rank has which shard",
        c.train.shards, buffers.front().first);
  return std::make_unique<ShardSumHook>(static_cast<int>(c.train.shards), state.shards, group);
}

// shard_sums: receives the hook for train.shards, which the result owns.
std::unique_ptr<DataParallelism> make_parallelism(const TrainConfig& c, TrainState& state, const MeshGroups& groups,
                                                  ExpertParallel* experts, ShardSumHook*& shard_sums) {
  const DdpOptions options = ddp_options(c);
  const auto& p = c.parallel;
  nn::Module& model = *state.model;
  if (p.pipeline > 1) return nullptr;
  ProcessGroup& group = groups.gradients;
  if (experts) return make_expert_data_parallel(c, model, *experts, groups, options);
  if (p.strategy == "local_sgd")
    return std::make_unique<LocalSgd>(
        model, group,
        LocalSgdOptions{
            .ddp = options,
            .period = p.local_sgd_period,
            .start_localSGD_iter = p.start_localSGD_iter,
            .outer = {.lr = p.outer_lr, .momentum = p.outer_momentum, .fragment_update_alpha = p.fragment_update_alpha},
            .fragments = p.fragments,
            .fragment_sync_delay = p.fragment_sync_delay});
  if (is_divided_among_cuda_devices(p)) return std::make_unique<SoleRank>(model, group);
  if (p.zero < 2) {
    auto ddp = make_ddp(c, model, group);
    if (c.train.shards > 0) {
      auto hook = make_shard_sums(c, state, group);
      shard_sums = hook.get();
      ddp->register_comm_hook(std::move(hook));
    }
    return ddp;
  }
  check_shard_group(p, group);
  return std::make_unique<ShardedDataParallel>(model, group, sharded_options(c));
}

// Throws if the ranks or devices of an earlier session had parts of the state: they are lost with that session.
void check_whole(const TrainConfig::Parallel& p, const TrainState& state) {
  if (!state.optimizer || state.run.step == 0) return;
  for (const auto& [key, on] : {std::pair("parallel.tensor", p.tensor > 1), std::pair("parallel.expert", p.expert > 1),
                                std::pair("parallel.zero", p.zero > 0), std::pair("parallel.pipeline", p.pipeline > 1),
                                std::pair("parallel.micro_batches", p.micro_batches > 0)})
    if (on)
      throw make_error(Errc::unsupported, "{}: a run goes on in another process group from a checkpoint alone", key);
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
        tensor_plan(c.model.name, *state.model, c.parallel.sequence ? Undivided::positions : Undivided::whole),
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
  if (!tensor || !tensor->divides_scores()) return nullptr;
  return task.with_cross_entropy([&group = tensor->group()](const Variable& scores, const Tensor& targets) {
    return vocabulary_parallel_cross_entropy(scores, targets, group, data::ignored_target);
  });
}

std::vector<pipeline::Layer> layers_of(const FormsContext& of, const ContextParallel* context) {
  if (of.config.parallel.pipeline == 1) return {};
  const Tensor input = empty_batch(of.layout, micro_batch_size(of.config, of.group.size()));
  return measured_layers(of.config, *of.state.model, context ? context->own_positions(input) : input, of.group);
}

std::unique_ptr<pipeline::PipelinedDataParallel> make_pipelined(const TrainConfig& c, nn::Module& model,
                                                                const std::vector<pipeline::Layer>& layers,
                                                                const ExpertParallel* experts,
                                                                const MeshGroups& groups) {
  if (c.parallel.pipeline == 1) return nullptr;
  if (experts)
    return make_rank_pipeline(c, model, layers, *groups.stages, groups.gradients_of_experts,
                              stages_with_experts(c, *experts, groups));
  if (c.parallel.zero > 1) {
    check_shard_group(c.parallel, groups.gradients);
    return make_rank_pipeline(c, model, layers, *groups.stages, groups.gradients,
                              pipeline::sharded_stages(sharded_options(c)));
  }
  auto stages = pipeline::distributed_stages(ddp_options(c));
  stages.make = [&c](nn::Module& whole, ProcessGroup& group, const StageTensors& own) {
    return make_ddp(c, whole, group, own);
  };
  return make_rank_pipeline(c, model, layers, *groups.stages, groups.gradients, std::move(stages));
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
      pipelined(make_pipelined(of.config, *of.state.model, layers, experts.get(), groups)),
      of_passes(make_parallelism(of.config, of.state, groups, experts.get(), shard_sums)),
      parallelism(pipelined ? *pipelined : *of_passes),
      replicas(make_data_parallel(of.config, *of.state.model, of.layout, task)),
      device_(names_cuda_devices(of.config.parallel) ? devices_of(of.config.parallel).front()
                                                     : device_of(*of.state.model)),
      targets_device_(device_pipeline && device_ != Device{} ? devices_of(of.config.parallel).back() : device_) {
  if (of.config.parallel.sync_batch_norm) sync_batch_norm.emplace(*of.state.model, of.group);
}

std::vector<sharding::SlicesOnAxis> ParallelForms::slices() const {
  std::vector<sharding::SlicesOnAxis> all;
  if (experts) all.push_back({"expert", &experts->parts()});
  if (tensor) all.push_back({"tensor", &tensor->parts()});
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
  std::uint64_t sum = mesh.bytes_sent() + parallelism.bytes_sent();
  for (const ProcessGroup* group :
       {&parallelism.shard_group(), static_cast<ProcessGroup*>(parallelism.replica_group())})
    if (group && group->size() < groups.gradients.size()) sum += group->bytes_sent();  // if it is not one of the mesh
  return sum;
}

}  // namespace ddprun::trainer

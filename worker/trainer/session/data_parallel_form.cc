#include "worker/trainer/session/data_parallel_form.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "worker/parallel/forms/data/device_hooks.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/data/local_sgd/local_sgd.h"
#include "worker/parallel/forms/data/sole_rank.h"
#include "worker/parallel/forms/data/zero/sharded_data_parallel.h"
#include "worker/parallel/forms/expert/expert_data_parallel.h"
#include "worker/reducer/built_in_hooks.h"
#include "worker/trainer/config/checks.h"
#include "worker/trainer/config/device_settings.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/state/train_device.h"

namespace ddprun::trainer {
namespace {

using pipeline::StageParallelism;

DdpOptions ddp_options(const TrainConfig& c) {
  constexpr double bytes_per_mib = 1024.0 * 1024.0;
  const auto& p = c.parallel;
  DdpOptions options = p.ddp;
  options.limits.bytes = static_cast<std::size_t>(c.dist.bucket_mb * bytes_per_mib);
  options.limits.first_bytes = std::min(options.limits.first_bytes, options.limits.bytes);
  options.ignored_parameters = parse_names(p.ignored_parameters);
  options.delay_all_reduce_named_params = parse_names(p.delay_all_reduce_named_params);
  options.param_to_hook_all_reduce = p.param_to_hook_all_reduce;
  options.shard_gradients = p.zero > 0;
  return options;
}

// Gradients that several ranks have alike would be rounded in another way at each that has its own beside them.
DdpOptions ddp_options(const TrainConfig& c, const AxisForms& axes) {
  DdpOptions options = ddp_options(c);
  if (rounds_buckets(c.parallel.hook)) options.apart = axes.own_gradients();
  return options;
}

// A layer of a plug-in may need its weight for the gradient of the weight, which zero_bubble computes after the rest of
// the backward pass.
bool needs_weights_late(const TrainConfig& c) {
  return c.parallel.schedule == "zero_bubble" && !is_built_in(c.model);
}

// Returns the type to which a hook that only rounds gradients rounds them.
std::optional<DType> sent_type(const TrainConfig& c) {
  if (c.parallel.hook == "allreduce") return std::nullopt;
  return has_hook(c.parallel.hook, "bf16") ? DType::bfloat16 : DType::float16;
}

ShardedOptions sharded_options(const TrainConfig& c) {
  const DdpOptions ddp = ddp_options(c);
  ShardedOptions options = c.parallel.sharded;
  options.limits = ddp.limits;
  options.shard_parameters = c.parallel.zero == 3;
  if (needs_weights_late(c)) options.reshard_after_forward = false;
  options.broadcast_buffers = ddp.broadcast_buffers;
  options.gradients_as = sent_type(c);
  options.find_unused_parameters = ddp.find_unused_parameters || ddp.static_graph;
  options.ignored_parameters = ddp.ignored_parameters;
  return options;
}

void check_shard_group(const TrainConfig::Parallel& p, const ProcessGroup& group) {
  if (p.sharded.shard_group == 0) return;
  naming_key("parallel.shard_group", p.sharded.shard_group, [&] {
    return mesh_sizes({{"replicate", mesh_rest}, {"shard", p.sharded.shard_group}}, group.size());
  });
  // Experts are sharded among those ranks of a shard group that have the same ones.
  const int ranks = ranks_of_replica(p.ranks) / ranks_of_model(p.ranks);
  if (p.ranks.on("expert") == 1 || p.sharded.shard_group % ranks == 0) return;
  std::string keys;
  for (const ModelAxis* axis : axes_in_use(p.ranks))
    if (axis->has_own_gradients) keys += fmt::format(" {}", axis->key);
  throw make_error(Errc::usage, "parallel.shard_group = {}: expected a multiple of{} = {}", p.sharded.shard_group, keys,
                   ranks);
}

std::unique_ptr<CommHook> comm_hook(const TrainConfig& c, ProcessGroup& group, Device device) {
  const auto& p = c.parallel;
  const bool on_device = device.type == DeviceType::cuda;
  if (on_device && (p.hook == "fp16" || p.hook == "bf16"))
    return make_device_cast_hook(p.hook == "fp16" ? DType::float16 : DType::bfloat16, group);
  HookOptions options = p.hook_options;
  options.power_sgd.random_seed = static_cast<std::uint64_t>(c.train.seed);
  options.one_bit.beta1 = c.optim.beta1;
  options.one_bit.beta2 = c.optim.beta2;
  options.own_part = p.zero > 0;
  auto hook = make_hook(p.hook, group, options);
  return on_device ? make_host_hook(std::move(hook), group) : std::move(hook);
}

// The options of DistributedDataParallel that name parameters are keys of [parallel] of the same names.
template <class Act>
auto naming_keys_of_parallel(Act act) {
  try {
    return act();
  } catch (const Error& e) {
    if (e.code() != Errc::usage) throw;
    throw make_error(Errc::usage, "parallel.{}", e.what());
  }
}

std::unique_ptr<DistributedDataParallel> make_ddp(const TrainConfig& c, const TrainState& state, DdpOptions options,
                                                  nn::Module& model, ProcessGroup& group, const StageTensors& stages) {
  options.stages = stages;
  options.init_sync = !state.ranks_agree;
  return naming_keys_of_parallel([&] {
    auto ddp = std::make_unique<DistributedDataParallel>(model, group, options);
    if (c.parallel.hook != "allreduce") ddp->register_comm_hook(comm_hook(c, group, device_of(model)));
    return ddp;
  });
}

StageParallelism replicated(const TrainConfig& c, const TrainState& state, const AxisForms& axes,
                            const UpdateGate* gate) {
  DdpOptions options = ddp_options(c, axes);
  if (gate) options.cancelled = gate->cancelled();
  auto form = pipeline::distributed_stages(options);
  form.make = [&, options](nn::Module& model, ProcessGroup& group, const StageTensors& stages) {
    return make_ddp(c, state, options, model, group, stages);
  };
  return form;
}

// Updates of experts, if they are sharded, too, are those of other ranks than the rest's.
StageParallelism replicated_experts(const TrainConfig& c, const AxisForms& axes, const MeshGroups& groups) {
  const sharding::DimensionShards& experts = *axes.experts();
  const auto options_of = [options = ddp_options(c, axes)](const StageTensors& stages) {
    DdpOptions own = options;
    own.stages = stages;
    return own;
  };
  return {.make =
              [&, options_of](nn::Module& model, ProcessGroup&, const StageTensors& stages) {
                ExpertDataParallel::MakeHook make_hook;
                if (c.parallel.hook != "allreduce")
                  make_hook = [&](ProcessGroup& group) { return comm_hook(c, group, device_of(model)); };
                return naming_keys_of_parallel([&] {
                  return std::make_unique<ExpertDataParallel>(model, experts, groups.gradients_of_experts,
                                                              groups.gradients, options_of(stages), make_hook);
                });
              },
          .buckets =
              [&experts, options_of](nn::Module& model, const StageTensors& stages) {
                return ExpertDataParallel::buckets(model, experts, options_of(stages));
              },
          .own_buffers = !ddp_options(c).broadcast_buffers};
}

StageParallelism sharded(const TrainConfig& c, const MeshGroups& groups, const AxisForms& axes) {
  check_shard_group(c.parallel, groups.gradients);
  ShardedOptions options = sharded_options(c);
  if (axes.experts()) options.sliced = {axes.experts()->names(), &groups.gradients_of_experts};
  auto form = pipeline::sharded_stages(options);
  form.make = [&groups, make = std::move(form.make)](nn::Module& model, ProcessGroup&, const StageTensors& stages) {
    return make(model, groups.gradients, stages);
  };
  return form;
}

StageParallelism local_steps(const TrainConfig& c) {
  return {.make =
              [&c](nn::Module& model, ProcessGroup& group, const StageTensors&) {
                LocalSgdOptions options = c.parallel.local_sgd;
                options.ddp = ddp_options(c);
                return std::make_unique<LocalSgd>(model, group, options);
              },
          .buckets = {}};
}

StageParallelism sole_rank() {
  return {.make = [](nn::Module& model, ProcessGroup& group,
                     const StageTensors&) { return std::make_unique<SoleRank>(model, group); },
          .buckets = {}};
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

StageParallelism summed_by_shard(const TrainConfig& c, TrainState& state, ShardSumHook*& shard_sums) {
  return {.make =
              [&](nn::Module& model, ProcessGroup& group, const StageTensors& stages) {
                auto ddp = make_ddp(c, state, ddp_options(c), model, group, stages);
                auto hook = make_shard_sums(c, state, group);
                shard_sums = hook.get();
                ddp->register_comm_hook(std::move(hook));
                return ddp;
              },
          .buckets = {}};
}

}  // namespace

StageParallelism data_parallel_form(const TrainConfig& c, TrainState& state, const MeshGroups& groups,
                                    const AxisForms& axes, const UpdateGate* gate, ShardSumHook*& shard_sums) {
  if (c.parallel.zero > 1) return sharded(c, groups, axes);
  if (axes.experts()) return replicated_experts(c, axes, groups);
  if (c.parallel.strategy == "local_sgd") return local_steps(c);
  if (is_divided_among_cuda_devices(c.parallel)) return sole_rank();
  if (c.train.shards > 0) return summed_by_shard(c, state, shard_sums);
  return replicated(c, state, axes, gate);
}

}  // namespace ddprun::trainer

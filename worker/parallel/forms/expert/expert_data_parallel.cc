#include "worker/parallel/forms/expert/expert_data_parallel.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/comm/subgroups.h"
#include "worker/parallel/forms/data/scaled_hook.h"
#include "worker/parallel/group_tensors.h"
#include "worker/reducer/hooks/reduce_scatter_hook.h"

namespace ddprun {
namespace {

// Returns the parameters of experts, or the others of the model.
std::vector<std::pair<std::string, Variable>> parameters(const nn::Module& model,
                                                         const sharding::DimensionShards& shards, bool of_experts) {
  auto all = model.named_parameters();
  std::erase_if(all, [&](const auto& each) { return shards.contains(each.first) != of_experts; });
  return all;
}

// A parameter cannot wait for the gradient of one that is averaged apart from it.
void check_delays(const sharding::DimensionShards& shards, const DdpOptions& options) {
  const auto& awaited = options.param_to_hook_all_reduce;
  if (awaited.empty()) return;
  for (const auto& name : options.delay_all_reduce_named_params)
    if (shards.contains(name) != shards.contains(awaited))
      throw make_error(
          Errc::usage,
          "delay_all_reduce_named_params: {} cannot wait for param_to_hook_all_reduce = {}: one of them is "
          "an expert's, and the gradients of experts are averaged apart from the others",
          name, awaited);
}

DdpOptions options_for(const nn::Module& model, const sharding::DimensionShards& experts, bool of_experts,
                       DdpOptions options) {
  check_delays(experts, options);
  for (const auto& [name, parameter] : parameters(model, experts, !of_experts))
    options.ignored_parameters.push_back(name);
  if (of_experts)
    for (const auto& [name, buffer] : model.named_buffers()) options.ignored_parameters.push_back(name);
  const auto is_other = [&](const std::string& name) { return experts.contains(name) != of_experts; };
  std::erase_if(options.delay_all_reduce_named_params, is_other);
  if (is_other(options.param_to_hook_all_reduce)) options.param_to_hook_all_reduce.clear();
  return options;
}

// Adds buckets to those of the same parameters, by name.
void add_buckets(std::vector<Bucket>& all, const std::vector<std::pair<std::string, Variable>>& parameters,
                 const GradientBuckets& more) {
  for (Bucket bucket : more.buckets) {
    for (BucketSlice& slice : bucket.slices) {
      const auto is_it = [&](const auto& each) { return each.first == more.parameters[slice.parameter].first; };
      slice.parameter = static_cast<std::size_t>(std::ranges::find_if(parameters, is_it) - parameters.begin());
    }
    all.push_back(std::move(bucket));
  }
}

}  // namespace

GradientBuckets ExpertDataParallel::buckets(const nn::Module& model, const sharding::DimensionShards& experts,
                                            const DdpOptions& options) {
  GradientBuckets all{.parameters = model.named_parameters(), .buckets = {}};
  for (const bool of_experts : {true, false})
    add_buckets(all.buckets, all.parameters, gradient_buckets(model, options_for(model, experts, of_experts, options)));
  return all;
}

ExpertDataParallel::ExpertDataParallel(nn::Module& model, const sharding::DimensionShards& experts,
                                       ProcessGroup& replicas, ProcessGroup& all, const DdpOptions& options,
                                       const MakeHook& make_hook)
    : model_(model),
      experts_(experts),
      replicas_(replicas),
      all_(all),
      own_group_(&experts.group() == &all ? split(all, 0, all.rank()) : nullptr),
      of_experts_(model, replicas, options_for(model, experts, true, options)),
      others_(model, own_group_ ? *own_group_ : all, options_for(model, experts, false, options)) {
  // The gradient of an expert at one rank already includes the tokens of its whole group.
  const double share = 1.0 / all.size(), of_average = static_cast<double>(replicas.size()) / all.size();
  if (make_hook) {
    of_experts_.register_comm_hook(make_scaled_hook(make_hook(replicas), of_average));
    others_.register_comm_hook(make_hook(own_group_ ? *own_group_ : all));
  } else if (options.shard_gradients) {
    of_experts_.register_comm_hook(make_scaled_hook(make_reduce_scatter_hook(replicas), of_average));
  } else {
    of_experts_.register_comm_hook([&replicas, share](const GradBucket& bucket) {
      return replicas.allreduce(bucket.span, Reduction::premultiplied_sum(share));
    });
  }
  if (options.shard_gradients) shard();
}

void ExpertDataParallel::shard() {
  for (const auto& each : model_.named_parameters())
    for (const auto* part : {of_experts_.sharded_buckets(), others_.sharded_buckets()})
      if (std::ranges::count(part->parameters, each.first, [](const auto& own) { return own.first; }) > 0)
        sharded_.parameters.push_back(each);
  for (const auto* part : {of_experts_.sharded_buckets(), others_.sharded_buckets()}) {
    add_buckets(sharded_.buckets, sharded_.parameters, {part->parameters, part->buckets});
    sharded_.groups.insert(sharded_.groups.end(), part->groups.begin(), part->groups.end());
    sharded_.values.insert(sharded_.values.end(), part->values.begin(), part->values.end());
    sharded_.gradients.insert(sharded_.gradients.end(), part->gradients.begin(), part->gradients.end());
  }
  if (!others_.sharded_buckets()->used) return;
  sharded_.used = [this](std::size_t p) {
    const std::string& name = sharded_.parameters[p].first;
    const auto* part = (experts_.contains(name) ? of_experts_ : others_).sharded_buckets();
    const auto found = std::ranges::find(part->parameters, name, [](const auto& each) { return each.first; });
    return part->used(static_cast<std::size_t>(found - part->parameters.begin()));
  };
}

std::vector<HookState> ExpertDataParallel::hook_state() {
  auto all = others_.comm_hook().state();
  for (auto& state : of_experts_.comm_hook().state()) {
    state.name = "experts, " + state.name;
    all.push_back(std::move(state));
  }
  return all;
}

void ExpertDataParallel::parameters_updated() {
  of_experts_.parameters_updated();
  others_.parameters_updated();
}

void ExpertDataParallel::prepare_forward() {
  of_experts_.prepare_forward();
  others_.prepare_forward();
}

Variable ExpertDataParallel::forward(const Variable& input) {
  prepare_forward();
  return model_(input);
}

void ExpertDataParallel::join_pass() {
  throw Error(Errc::unsupported, "a rank whose experts are divided makes every pass");
}

void ExpertDataParallel::join_backward() {
  of_experts_.join_backward();
  others_.join_backward();
}

std::shared_ptr<void> ExpertDataParallel::hold_reduction() {
  return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(of_experts_.hold_reduction(),
                                                                                   others_.hold_reduction());
}

void ExpertDataParallel::visit_parameters(const Visitor& visit) {
  for (const auto& [name, parameter] : model_.named_parameters()) visit(name, parameter.value());
}

void ExpertDataParallel::record_transfers(std::vector<Transfer>* into) {
  of_experts_.record_transfers(into);
  others_.record_transfers(into);
}

}  // namespace ddprun

#include "worker/trainer/session/local_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "worker/comm/collectives.h"
#include "worker/optim/clip.h"
#include "worker/parallel/group_tensors.h"
#include "worker/trainer/session/rank_times.h"
#include "worker/trainer/session/update_parts.h"
#include "worker/trainer/session/update_placements.h"

namespace ddprun::trainer {
namespace {

// Copies the state to the host, for a reader of the memory.
WholeState on_host(WholeState state) {
  for (auto* const tensors : {&state.model, &state.optimizer, &state.averages})
    for (auto& [name, tensor] : *tensors)
      if (tensor.device().type == DeviceType::cuda) tensor = tensor.to(Device{});
  return state;
}

// Returns whether a tensor of an optimizer belongs to one of these parameters.
bool belongs_to_any(const std::string& tensor, const std::vector<std::string>& parameters) {
  return std::ranges::any_of(parameters, [&](const auto& parameter) { return tensor.starts_with(parameter + "."); });
}

// Returns the groups with what this rank updates of their parameters.
std::vector<optim::ParameterGroup> groups_of(const optim::NamedParameters& own,
                                             std::vector<optim::ParameterGroup> groups) {
  for (auto& group : groups) {
    optim::NamedParameters updated;
    for (const auto& each : group.parameters)
      for (const auto& mine : own)
        if (mine.first == each.first) updated.push_back(mine);
    group.parameters = std::move(updated);
  }
  return groups;
}

// device: where the spans are.
void average(ProcessGroup& group, const std::vector<Span>& spans, Device device) {
  group.allreduce_coalesced(spans, ReduceOp::average, {.blocking = true, .after = compute_stream(device)});
}

// Returns " of pipeline 1 of tensor 0": what a hook keeps is of the parts that this rank has of the model.
std::string text_of_parts(const DeviceMesh& mesh) {
  std::string text;
  for (const auto& axis : mesh.shape().among(axes_with(&ModelAxis::shards_state)))
    if (mesh.size(axis) > 1) text += fmt::format(" of {} {}", axis, mesh.coordinate(axis));
  return text;
}

// A step of a stage takes as long as that of its slowest rank.
std::vector<double> seconds_of_stages(const ParallelForms& forms, const std::vector<profiler::StepTimes>& ranks) {
  std::vector<double> stages(static_cast<std::size_t>(forms.mesh.size("pipeline")));
  const std::size_t ranks_of_stage = ranks.size() / stages.size();  // neighbours: stages are the outermost axis
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    double& slowest = stages[r / ranks_of_stage];
    slowest = std::max(slowest, (ranks[r].forward + ranks[r].backward).count() / RankTimes::window);
  }
  return stages;
}

}  // namespace

LocalState::LocalState(const TrainConfig& config, TrainState& state, ParallelForms& forms)
    : config_(config), state_(state), forms_(forms), own_parameters_(forms.parallelism.own_parameters()) {
  apply_placements();
}

void LocalState::apply_placements() {
  shards_.reset();
  if (const auto* sharded = forms_.parallelism.sharded_buckets()) shards_.emplace(*sharded);
  parameters_ = shards_            ? shards_->parameters()
                : forms_.pipelined ? forms_.pipelined->pipeline().parameters()
                                   : state_.model->named_parameters();
  if (shards_) add_own_parameters();
  placements_ = placements_of_updates(forms_, *state_.model);
  std::vector<sharding::PlacedTensor> own;
  for (const auto& [name, parameter] : parameters_) own.push_back(placements_.of_parameter(name));
  sums_.emplace(own, forms_.mesh.all().rank(), axes_of_updates(forms_));
  sum_groups_.clear();
  for (const auto& indices : sums_->groups()) {
    auto& group = sum_groups_.emplace_back();
    for (const std::size_t i : indices)
      if (std::ranges::count(own_parameters_, parameters_[i].first) == 0) group.push_back(parameters_[i]);
  }
  make_optimizer_of_parts();
}

// Adds the parameters that each rank updates by itself, which are whole.
void LocalState::add_own_parameters() {
  const auto& present = forms_.pipelined ? forms_.pipelined->pipeline().parameters() : state_.model->named_parameters();
  for (const auto& [name, parameter] : present)
    if (parameter.requires_grad() && std::ranges::count(own_parameters_, name) > 0)
      parameters_.emplace_back(name, parameter);
}

// Makes the optimizer if there is none yet, or only one of the whole model.
void LocalState::make_optimizer_of_parts() {
  if (state_.optimizer && !shards_ && forms_.axes.shards().empty() && !forms_.pipelined) return;
  auto groups = parameter_groups(config_, *state_.model);
  if (shards_ || forms_.pipelined) groups = groups_of(parameters_, std::move(groups));
  state_.parts = shards_ || forms_.pipelined ? parameters_ : optim::NamedParameters{};
  state_.optimizer = make_optimizer(config_, std::move(groups), tensor_parts());
  if (config_.train.ema > 0)
    state_.ema.emplace(state_.parts.empty() ? trained_parameters(*state_.model) : state_.parts, config_.train.ema);
}

bool LocalState::is_updated_alone() const {
  return optim::is_elementwise(config_.optim.name) || (!shards_ && forms_.axes.shards().empty());
}

// Returns what an optimizer needs that is not of single elements, if there are parts of tensors.
std::shared_ptr<optim::TensorParts> LocalState::tensor_parts() const {
  if (is_updated_alone()) return nullptr;
  return std::make_shared<UpdateParts>(placements_, axes_of_updates(forms_), forms_.mesh.all(),
                                       forms_.pipelined ? &forms_.mesh.group("pipeline") : nullptr);
}

sharding::ShardedState LocalState::sharded(const optim::NamedTensors& own) const {
  ProcessGroup& all = forms_.mesh.all();
  ProcessGroup* stages = forms_.pipelined ? &forms_.mesh.group("pipeline") : nullptr;
  return {sharding::placed_tensors(placements_, own, stages), own, all};
}

// Returns the values of the parts of parameters that nothing but parts is kept of.
optim::NamedTensors LocalState::own_parts() const {
  optim::NamedTensors parts;
  if (forms_.parallelism.has_whole_parameters()) return parts;
  for (const auto& [name, parameter] : parameters_) parts.emplace_back(name, parameter.value());
  return parts;
}

// Returns the averages of train.ema, or where ranks have averages of their own the means of these.
optim::NamedTensors LocalState::averages_of_ranks() const {
  if (!forms_.parallelism.ranks_differ()) return state_.ema->averages();
  optim::NamedTensors means;
  std::vector<Span> spans;
  for (const auto& [name, own] : state_.ema->averages()) {
    means.emplace_back(name, own.clone());
    spans.push_back(span_of_tensor(means.back().second));
  }
  average(forms_.mesh.all(), spans, forms_.device());
  return means;
}

// With local SGD, what is saved exists for the moment.
WholeState LocalState::gather() {
  if (forms_.parallelism.ranks_differ()) saved_model_ = forms_.parallelism.evaluated_model();
  const StateParts own = parts();
  WholeState whole{.model = own.model.gather(), .optimizer = own.optimizer.gather()};
  if (state_.ema && state_.ema->started()) whole.averages = sharded(averages_of_ranks()).gather();
  whole.stays = !saved_model_;
  return on_host(std::move(whole));
}

WholeState LocalState::whole() {
  const StateParts own = parts();
  return {
      .model = own.model.whole_like(), .optimizer = own.optimizer.whole_like(), .averages = own.averages.whole_like()};
}

void LocalState::distribute(const WholeState& whole) {
  const StateParts own = parts();
  own.model.scatter(whole.model);
  own.optimizer.scatter(whole.optimizer);
  parts_restored();
}

void LocalState::distribute_averages(const WholeState& whole) {
  sharded(state_.ema->averages()).scatter(whole.averages);
  state_.ema->set_started();
}

// Returns what this rank updates of each parameter, or its value if nobody updates it, and its buffers.
optim::NamedTensors LocalState::parts_of_model() const {
  optim::NamedTensors parts;
  for (const auto& [name, part] : parameters_) parts.emplace_back(name, part.value());
  const auto& present = forms_.pipelined ? forms_.pipelined->pipeline().parameters() : state_.model->named_parameters();
  for (const auto& [name, parameter] : present)
    if (std::ranges::none_of(parameters_, [&](const auto& each) { return each.first == name; }))
      parts.emplace_back(name, parameter.value());
  const auto buffers = forms_.pipelined ? forms_.pipelined->pipeline().buffers() : state_.model->named_buffers();
  parts.insert(parts.end(), buffers.begin(), buffers.end());
  return parts;
}

StateParts LocalState::parts() {
  const auto own = tensors_of(state_);
  return {.model = sharded(parts_of_model()), .optimizer = sharded(own.optimizer), .averages = sharded(own.averages)};
}

void LocalState::visit_parameters(const DataParallelism::Visitor& visit) {
  forms_.parallelism.visit_parameters([&](const std::string& name, const Tensor& value) {
    Tensor whole = value;
    for (const auto* each : forms_.axes.shards()) whole = each->whole(name, whole);
    visit(name, whole);
  });
}

void LocalState::visit_replicas(const ReplicaVisitor& visit) {
  if (forms_.parallelism.ranks_differ()) return;
  // There may be copies of parts in other shard groups.
  const bool has_parts = !forms_.parallelism.has_whole_parameters();
  const auto ignored = parse_names(config_.parallel.ignored_parameters);
  const auto& parameters = has_parts          ? parameters_
                           : forms_.pipelined ? forms_.pipelined->pipeline().parameters()
                                              : state_.model->named_parameters();
  for (const auto& [name, parameter] : parameters) {
    if (std::ranges::count(ignored, name) > 0) continue;
    ProcessGroup* const group = has_parts ? forms_.parallelism.replica_group() : &forms_.replicas_of(name);
    if (group) visit(*group, name, parameter.value());
    // Parameters that are not sliced are the same at the ranks that shard the others, unless these shard them, too.
    for (const auto* each : forms_.axes.shards())
      if (!each->contains(name) && (!has_parts || each != forms_.axes.experts()))
        visit(each->group(), name, parameter.value());
  }
}

std::vector<HookState> LocalState::own_state() {
  auto all = forms_.parallelism.hook_state();
  for (auto& state : all) state.name += text_of_parts(forms_.mesh);
  for (const auto& [name, tensor] : state_.optimizer->state())
    if (forms_.parallelism.ranks_differ() || belongs_to_any(name, own_parameters_))
      all.push_back({"optimizer/" + name, span_of_tensor(tensor)});
  if (!state_.ema) return all;
  for (const auto& [name, tensor] : state_.ema->averages())
    if (forms_.parallelism.ranks_differ() || std::ranges::count(own_parameters_, name) > 0)
      all.push_back({"ema/" + name, span_of_tensor(tensor)});
  return all;
}

optim::NamedParameters LocalState::counted_parameters() const {
  optim::NamedParameters counted;
  for (const auto& group : sum_groups_) counted.insert(counted.end(), group.begin(), group.end());
  return counted;
}

double LocalState::square_sum() const {
  return sums_->sum([this](std::size_t group) { return optim::grad_square_sum(sum_groups_[group]); });
}

double LocalState::mean_square_sum() const {
  std::vector<double> mean{square_sum()};
  if (forms_.parallelism.ranks_differ()) allreduce(forms_.mesh.all(), mean, ReduceOp::average);
  return mean[0];
}

std::function<bool(bool)> LocalState::holds_at_all() const {
  if (has_own_gradients())
    return [this](bool holds) {
      std::vector<double> failed{holds ? 0.0 : 1.0};
      allreduce(forms_.mesh.all(), failed);
      return failed[0] == 0;
    };
  if (!sums_->is_sharded()) return {};
  return [this](bool holds) { return sums_->sum_over_ranks(holds ? 0 : 1) == 0; };
}

void LocalState::average_square_sum(const Tensor& square_sum) const {
  if (forms_.parallelism.ranks_differ()) average(forms_.mesh.all(), {span_of_tensor(square_sum)}, forms_.device());
}

void LocalState::spread_failure(const Tensor& flag) const {
  if (has_own_gradients()) average(forms_.mesh.all(), {span_of_tensor(flag)}, forms_.device());
}

std::string LocalState::balance_stages(const std::vector<profiler::StepTimes>& ranks) {
  if (!forms_.stage_balancer) return "";
  const auto decision = forms_.stage_balancer->observe(seconds_of_stages(forms_, ranks));
  if (!decision) return "";
  cut_at(pipeline::piece_cuts(forms_.layers, decision->cuts));
  return fmt::format("layer {} moves from stage {} to stage {}: {}", forms_.layers[decision->layer].name,
                     decision->from, decision->to, decision->reason);
}

// Model, optimizer and averages keep their values, at other ranks. If the group fails within, the parts as they were
// before still have those values, and what is no part, too.
void LocalState::cut_at(const std::vector<std::size_t>& cuts) {
  const double lr = state_.optimizer->lr();
  const auto steps = state_.optimizer->step_count();
  const bool has_averages = state_.ema && state_.ema->started();
  const auto state = sharded(state_.optimizer->state());
  const auto averages = has_averages ? std::optional(sharded(state_.ema->averages())) : std::nullopt;
  const auto parts = sharded(own_parts());
  forms_.pipelined->cut_at(cuts);
  apply_placements();
  state_.optimizer->set_lr(lr);
  state_.optimizer->set_step_count(steps);
  if (has_averages) state_.ema->set_started();
  parts.move_to(sharded(own_parts()));
  if (!forms_.parallelism.has_whole_parameters()) forms_.parallelism.parameters_updated();
  state.move_to(sharded(state_.optimizer->state()));
  if (has_averages) averages->move_to(sharded(state_.ema->averages()));
}

}  // namespace ddprun::trainer

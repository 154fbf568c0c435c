#include "ddprun/worker/trainer/session/divided_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ddprun/worker/optim/clip.h"
#include "ddprun/worker/parallel/group_tensors.h"
#include "ddprun/worker/trainer/session/rank_times.h"

namespace ddprun::trainer {
namespace {

// For who reads the memory.
WholeState on_host(WholeState state) {
  for (auto* const tensors : {&state.model, &state.optimizer, &state.averages})
    for (auto& [name, tensor] : *tensors)
      if (tensor.device().type == DeviceType::cuda) tensor = tensor.to(Device{});
  return state;
}

double sum_over(ProcessGroup& group, double value) {
  group.allreduce({&value, 1, DType::float64}, ReduceOp::sum, {.blocking = true});
  return value;
}

// Of a tensor of an optimizer.
bool belongs_to_any(const std::string& tensor, const std::vector<std::string>& parameters) {
  return std::ranges::any_of(parameters, [&](const auto& parameter) { return tensor.starts_with(parameter + "."); });
}

// Of the groups, the parameters that are among these.
std::vector<optim::ParameterGroup> groups_of(const optim::NamedParameters& own,
                                             std::vector<optim::ParameterGroup> groups) {
  for (auto& group : groups)
    std::erase_if(group.parameters, [&](const auto& each) {
      return std::ranges::none_of(own, [&](const auto& mine) { return mine.first == each.first; });
    });
  return groups;
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

DividedState::DividedState(const TrainConfig& config, TrainState& state, ParallelForms& forms)
    : config_(config),
      state_(state),
      forms_(forms),
      shards_(forms.parallelism.divided()
                  ? std::make_optional<ParameterShards>(*forms.parallelism.divided(), forms.parallelism.shard_group(),
                                                        forms.parallelism.replica_group())
                  : std::nullopt),
      replicas_(forms.replica_group()),
      own_parameters_(forms.parallelism.own_parameters()),
      parameters_(shards_           ? shards_->parameters()
                  : forms.pipelined ? forms.pipelined->pipeline().parameters()
                                    : state.model->named_parameters()) {
  if (shards_)
    make_optimizer_of_parts(shards_->parameters(), shards_->of(parameter_groups(config_, *state_.model)));
  else if (forms.pipelined)
    make_optimizer_of_parts(parameters_, groups_of(parameters_, parameter_groups(config_, *state_.model)));
  else if (forms.slices() || (forms.device_pipeline && !state_.optimizer))
    make_optimizer_of_parts({}, parameter_groups(config_, *state_.model));
}

void DividedState::make_optimizer_of_parts(optim::NamedParameters parts, std::vector<optim::ParameterGroup> groups) {
  state_.parts = std::move(parts);
  state_.optimizer = make_optimizer(config_, std::move(groups));
  if (config_.train.ema > 0)
    state_.ema.emplace(state_.parts.empty() ? trained_parameters(*state_.model) : state_.parts, config_.train.ema);
}

// Over the replicas, and the pipeline; what is whole there is sliced over another group, if at all.
const StateDivision& DividedState::division_of_optimizer() const {
  if (forms_.pipelined) return *forms_.pipelined;
  return shards_ ? static_cast<const StateDivision&>(*shards_) : replicas_;
}

// Whether the division of model and optimizer collects them here: what is sliced stays so.
bool DividedState::collects() const {
  return forms_.replica_group().rank() == 0 && (!forms_.pipelined || forms_.pipelined->pipeline().group().rank() == 0);
}

WholeState DividedState::gather() {
  WholeState whole{.model = {}, .optimizer = division_of_optimizer().gather(state_.optimizer->state())};
  if (state_.ema && state_.ema->started()) whole.averages = division_of_optimizer().gather(state_.ema->averages());
  forms_.parallelism.collect_parameters();
  whole.model = tensors_of(*state_.model);
  if (!forms_.slices()) return on_host(std::move(whole));
  if (!collects()) return {};
  return {.model = forms_.slices()->gather(whole.model),
          .optimizer = forms_.slices()->gather(whole.optimizer),
          .averages = forms_.slices()->gather(whole.averages)};
}

WholeState DividedState::whole() {
  WholeState whole{.model = {}, .optimizer = division_of_optimizer().whole_like(state_.optimizer->state())};
  if (state_.ema) whole.averages = division_of_optimizer().whole_like(state_.ema->averages());
  forms_.parallelism.collect_parameters();
  whole.model = tensors_of(*state_.model);
  if (!forms_.slices()) return whole;
  if (!collects()) return {};
  return {.model = forms_.slices()->whole_like(whole.model),
          .optimizer = forms_.slices()->whole_like(whole.optimizer),
          .averages = forms_.slices()->whole_like(whole.averages)};
}

void DividedState::distribute(const WholeState& whole) {
  optim::NamedTensors optimizer = whole.optimizer;
  if (forms_.slices()) optimizer = division_of_optimizer().whole_like(state_.optimizer->state());
  if (forms_.slices() && collects()) {
    forms_.slices()->scatter(whole.model, tensors_of(*state_.model));
    forms_.slices()->scatter(whole.optimizer, optimizer);
  }
  forms_.parallelism.distribute_model();
  division_of_optimizer().scatter(optimizer, state_.optimizer->state());
}

void DividedState::distribute_averages(const WholeState& whole) {
  const auto& own = state_.ema->averages();
  optim::NamedTensors averages = whole.averages;
  if (forms_.slices()) averages = division_of_optimizer().whole_like(own);
  if (forms_.slices() && collects()) {
    forms_.slices()->scatter(whole.averages, averages);
  }
  division_of_optimizer().scatter(averages, own);
  state_.ema->set_started();
}

void DividedState::visit_parameters(const DataParallelism::Visitor& visit) {
  forms_.parallelism.visit_parameters([&](const std::string& name, const Tensor& value) {
    visit(name, forms_.slices() ? forms_.slices()->whole(name, value) : value);
  });
}

void DividedState::visit_replicas(const ReplicaVisitor& visit) {
  if (forms_.parallelism.ranks_differ()) return;
  const bool has_parts = config_.parallel.zero == 3;  // of which there are copies in other shard groups, if at all
  if (has_parts && !forms_.parallelism.replica_group()) return;
  ProcessGroup& group = has_parts ? *forms_.parallelism.replica_group() : forms_.replica_group();
  const auto ignored = parse_names(config_.parallel.ignored_parameters);
  for (const auto& [name, parameter] : has_parts || forms_.pipelined ? parameters_ : state_.model->named_parameters()) {
    if (std::ranges::count(ignored, name) > 0) continue;
    visit(group, name, parameter.value());
    // What is not sliced is the same at the ranks among which the rest is.
    if (forms_.slices() && !forms_.slices()->divides(name)) visit(forms_.slices()->group(), name, parameter.value());
  }
}

std::vector<HookState> DividedState::own_state() {
  auto all = forms_.parallelism.hook_state();
  for (const auto& [name, tensor] : state_.optimizer->state())
    if (forms_.parallelism.ranks_differ() || belongs_to_any(name, own_parameters_))
      all.push_back({"optimizer/" + name, span_of_tensor(tensor)});
  if (!state_.ema) return all;
  for (const auto& [name, tensor] : state_.ema->averages())
    if (std::ranges::count(own_parameters_, name) > 0) all.push_back({"ema/" + name, span_of_tensor(tensor)});
  return all;
}

// Of the whole gradient, of which each rank has a part; what is the same at all ranks counts once. A rank's own
// gradients do not count: all ranks need the same norm.
double DividedState::square_sum() const {
  if (!own_parameters_.empty()) {
    auto averaged = parameters_;
    std::erase_if(averaged, [&](const auto& each) { return std::ranges::count(own_parameters_, each.first) > 0; });
    return optim::grad_square_sum(averaged);
  }
  double value = square_sum_over_slices(parameters_);
  if (forms_.pipelined) value -= square_sum_over_slices(forms_.pipelined->pipeline().repeated());
  return sum_over_parts(value, false);
}

std::function<bool(bool)> DividedState::holds_at_all() const {
  const bool ranks_differ = shards_ || forms_.slices() || forms_.pipelined || !own_parameters_.empty();
  if (!ranks_differ) return {};
  return [this](bool holds) { return sum_over_parts(holds ? 0 : 1, true) == 0; };
}

double DividedState::square_sum_over_slices(const optim::NamedParameters& parameters) const {
  if (!forms_.slices()) return optim::grad_square_sum(parameters);
  optim::NamedParameters divided, whole;
  for (const auto& each : parameters) (forms_.slices()->divides(each.first) ? divided : whole).push_back(each);
  return optim::grad_square_sum(whole) + sum_over(forms_.slices()->group(), optim::grad_square_sum(divided));
}

// Over the ranks among which parameters are divided, or which have some of their own.
double DividedState::sum_over_parts(double value, bool of_slices) const {
  if (forms_.slices() && of_slices) value = sum_over(forms_.slices()->group(), value);
  if (forms_.pipelined) return sum_over(forms_.pipelined->pipeline().group(), value);
  if (!own_parameters_.empty()) return sum_over(forms_.mesh.all(), value);
  return shards_ ? sum_over(forms_.parallelism.shard_group(), value) : value;
}

std::string DividedState::balance_stages(const std::vector<profiler::StepTimes>& ranks) {
  if (!forms_.stage_balancer) return "";
  const auto decision = forms_.stage_balancer->observe(seconds_of_stages(forms_, ranks));
  if (!decision) return "";
  cut_at(pipeline::piece_cuts(forms_.layers, decision->cuts));
  return fmt::format("layer {} moves from stage {} to stage {}: {}", forms_.layers[decision->layer].name,
                     decision->from, decision->to, decision->reason);
}

// Model and optimizer go on with the same values at other ranks.
void DividedState::cut_at(const std::vector<std::size_t>& cuts) {
  const auto before = std::move(state_.optimizer);
  const auto whole = forms_.pipelined->gather(before->state());
  forms_.pipelined->cut_at(cuts);
  parameters_ = forms_.pipelined->pipeline().parameters();
  make_optimizer_of_parts(parameters_, groups_of(parameters_, parameter_groups(config_, *state_.model)));
  forms_.pipelined->scatter(whole, state_.optimizer->state());
  state_.optimizer->set_lr(before->lr());
  state_.optimizer->set_step_count(before->step_count());
}

}  // namespace ddprun::trainer

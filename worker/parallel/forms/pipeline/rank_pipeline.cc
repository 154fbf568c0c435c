#include "worker/parallel/forms/pipeline/rank_pipeline.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "worker/parallel/releasable_memory.h"

namespace ddprun::pipeline {
namespace {

std::vector<Stage> checked(std::vector<Stage> stages) {
  for (const Stage& stage : stages)
    if (std::ranges::none_of(stage.parameters, [](const auto& each) { return each.second.requires_grad(); }))
      throw make_error(Errc::usage, "stage {} of the pipeline, from {} on, has no parameter that learns", stage.number,
                       stage.pieces.front().name);
  return stages;
}

std::vector<Stage> of_rank(std::vector<Stage> stages, const Schedule& schedule, int rank) {
  std::erase_if(stages, [&](const Stage& stage) { return schedule.rank_of(stage.number) != rank; });
  return stages;
}

template <class Named>
bool contains(const Named& all, const std::string& name) {
  return std::ranges::any_of(all, [&](const auto& each) { return each.first == name; });
}

PassKind pass_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return PassKind::forward;
    case ActionKind::backward:
      return PassKind::backward;
    case ActionKind::backward_input:
      return PassKind::backward_input;
    case ActionKind::backward_weight:
      return PassKind::backward_weight;
  }
  return PassKind::forward;
}

}  // namespace

void release_memory(Variable parameter) {
  const auto memory = std::make_shared<ReleasableMemory>(parameter.value().bytes());
  const std::shared_ptr<void> place(memory, memory->data());
  const Tensor value = Tensor::wrap(place.get(), parameter.shape(), parameter.dtype(), place);
  value.storage()->set_present(false);
  parameter.set_value(value);
}

void allocate_memory(Variable parameter) {
  if (parameter.value().storage()->is_present()) return;
  parameter.set_value(Tensor::zeros(parameter.shape(), parameter.dtype()));
}

RankPipeline::RankPipeline(nn::Module& model, const std::vector<std::size_t>& cuts, const Schedule& schedule,
                           ProcessGroup& group)
    : schedule_(schedule),
      group_(group),
      stages_(checked(make_stages(model, cuts))),
      tied_(stages_, schedule, group),
      channel_(group),
      executor_(schedule, group.rank(), of_rank(stages_, schedule, group.rank()), channel_) {
  place(model);
  drop_other_stages(model);
}

void RankPipeline::place(const nn::Module& model) {
  for (const Stage& stage : stages_) {
    const int rank = schedule_.rank_of(stage.number);
    for (const auto& [name, parameter] : stage.parameters) ranks_[name].insert(rank);
    for (const auto& [name, buffer] : stage.buffers) ranks_[name].insert(rank);
  }
  const auto mesh =
      std::make_shared<const MeshShape>(std::vector<MeshAxis>{{"pipeline", group_.size()}}, group_.size());
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    const auto& ranks = ranks_.at(name);
    placements_.add({name, tensor.shape().to_vector(), tensor.dtype()},
                    {.mesh = mesh, .stage = sharding::Stage{{ranks.begin(), ranks.end()}}});
  };
  for (const auto& [name, parameter] : model.named_parameters()) add(name, parameter.value());
  for (const auto& [name, buffer] : model.named_buffers()) add(name, buffer);
}

void RankPipeline::drop_other_stages(nn::Module& model) {
  optim::NamedParameters own = parameters_of(executor_.stages());
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (contains(own, name)) {
      allocate_memory(parameter);
      parameters_.emplace_back(name, parameter);
    } else {
      names_of_other_stages_.push_back(name);
      release_memory(parameter);
    }
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    const auto has = [&](const Stage& stage) { return contains(stage.buffers, name); };
    if (std::ranges::any_of(executor_.stages(), has))
      buffers_.emplace_back(name, buffer);
    else
      names_of_other_stages_.push_back(name);
  }
}

StageTensors RankPipeline::tensors_of(int rank) const {
  StageTensors tensors;
  std::map<std::string, int> uses;
  for (const Stage& stage : stages_)
    for (const auto& [name, parameter] : stage.parameters) {
      if (parameter.requires_grad() && ++uses[name] == 2) tensors.shared.push_back(name);
      if (schedule_.rank_of(stage.number) == rank) tensors.parameters[stage.number].push_back(name);
    }
  for (const auto& [name, ranks] : ranks_)
    if (!ranks.contains(rank)) tensors.absent.push_back(name);
  return tensors;
}

void RankPipeline::assume_inputs(const Tensor& input, DataParallelism& data) {
  const NoGradScope no_grad;
  Variable value(input);
  const StagePass pass{.stage = executor_.stages().front().number, .kind = PassKind::evaluation};
  data.run_pass(pass, [&] {
    for (const Stage& stage : stages_) {
      if (stage.number > 0) channel_.assume(stage.number, input.size(0), value.value());
      if (stage.number + 1 < schedule_.stages) value = stage(value);
    }
  });
}

void RankPipeline::evaluate(int micro_batch, StepFunctions step, DataParallelism& data) {
  step.around = [&data](const Action& action, const std::function<void()>& compute) {
    data.run_pass({.stage = action.stage, .kind = PassKind::evaluation}, compute);
  };
  executor_.evaluate(micro_batch, step);
}

void RankPipeline::train(StepFunctions step, DataParallelism& data) {
  data.prepare_forward();
  const int own = step.micro_batches;
  if (!data.reduces_every_pass())
    step.most_micro_batches = own;
  else if (step.most_micro_batches < own)
    throw make_error(Errc::usage, "StepFunctions::most_micro_batches is {}, and this rank has {}",
                     step.most_micro_batches, own);
  const bool overlaps = executor_.stages().size() == 1 && own > 0 && !data.reduces_every_pass();
  step.around = [&](const Action& action, const std::function<void()>& compute) {
    data.run_pass({.stage = action.stage,
                   .kind = pass_kind(action.kind),
                   .has_samples = action.micro_batch < own,
                   .reduces = overlaps && action.micro_batch + 1 == own},
                  compute);
  };
  executor_.train(step);
  if (!overlaps) data.join_backward();
  const auto start = std::chrono::steady_clock::now();
  tied_bytes_ += tied_.sum_gradients(data.sharded_buckets());  // the first stage is the last to come here
  waited_for_tied_ += std::chrono::steady_clock::now() - start;
}

}  // namespace ddprun::pipeline

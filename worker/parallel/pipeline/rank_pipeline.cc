#include "ddprun/worker/parallel/pipeline/rank_pipeline.h"

#include <algorithm>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/parallel/releasable_memory.h"

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

}  // namespace

void make_absent(Variable parameter) {
  const auto memory = std::make_shared<ReleasableMemory>(parameter.value().bytes());
  const std::shared_ptr<void> place(memory, memory->data());
  const Tensor value = Tensor::wrap(place.get(), parameter.shape(), parameter.dtype(), place);
  value.storage()->set_present(false);
  parameter.set_value(value);
}

void make_present(Variable parameter) {
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
  drop_foreign(model);
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

void RankPipeline::drop_foreign(nn::Module& model) {
  optim::NamedParameters own = parameters_of(executor_.stages());
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (contains(own, name)) {
      make_present(parameter);
      parameters_.emplace_back(name, parameter);
    } else {
      foreign_.push_back(name);
      make_absent(parameter);
    }
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    const auto has = [&](const Stage& stage) { return contains(stage.buffers, name); };
    if (std::ranges::any_of(executor_.stages(), has))
      buffers_.emplace_back(name, buffer);
    else
      foreign_.push_back(name);
  }
}

void RankPipeline::assume_inputs(const Tensor& input) {
  const NoGradScope no_grad;
  Variable value(input);
  for (const Stage& stage : stages_) {
    if (stage.number > 0) channel_.assume(stage.number, input.size(0), value.value());
    if (stage.number + 1 < schedule_.stages) value = stage(value);
  }
}

void RankPipeline::train(StepFunctions step, DataParallelism& data) {
  data.prepare_forward();
  const bool overlaps = executor_.stages().size() == 1 && step.micro_batches > 0;
  step.backward_scope = [&data, overlaps, last = step.micro_batches - 1](int micro_batch) -> std::shared_ptr<void> {
    return overlaps && micro_batch == last ? nullptr : data.hold_reduction();
  };
  executor_.train(step);
  if (!overlaps) data.join_backward();
  const auto start = std::chrono::steady_clock::now();
  tied_bytes_ += tied_.sum_gradients(data.divided());  // the first stage is the last to come here
  waited_for_tied_ += std::chrono::steady_clock::now() - start;
}

}  // namespace ddprun::pipeline

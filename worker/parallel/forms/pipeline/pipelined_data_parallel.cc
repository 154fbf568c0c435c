#include "worker/parallel/forms/pipeline/pipelined_data_parallel.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/error.h"
#include "worker/parallel/forms/data/own_tensors.h"
#include "worker/parallel/group_tensors.h"

namespace ddprun::pipeline {
namespace {

template <class Parallel, class Options>
StageParallelism with_options(Options options) {
  return {.make =
              [options](nn::Module& model, ProcessGroup& group, const StageTensors& stages) mutable {
                options.stages = stages;
                return std::make_unique<Parallel>(model, group, options);
              },
          .buckets =
              [options](nn::Module& model, const StageTensors& stages) mutable {
                options.stages = stages;
                return gradient_buckets(model, options);
              },
          .own_buffers = !options.broadcast_buffers};
}

}  // namespace

StageParallelism distributed_stages(DdpOptions options) {
  return with_options<DistributedDataParallel>(std::move(options));
}

StageParallelism sharded_stages(ShardedOptions options) {
  return with_options<ShardedDataParallel>(std::move(options));
}

PipelinedDataParallel::PipelinedDataParallel(nn::Module& model, ProcessGroup& stages, ProcessGroup& replicas,
                                             const std::vector<std::size_t>& cuts, const Schedule& schedule,
                                             StageParallelism of_stages)
    : model_(model), stages_(stages), replicas_(replicas), schedule_(schedule), of_stages_(std::move(of_stages)) {
  make_stages_at(cuts);
}

void PipelinedDataParallel::make_stages_at(const std::vector<std::size_t>& cuts) {
  pipeline_.emplace(model_, cuts, schedule_, stages_);
  data_ = of_stages_.make(model_, replicas_, pipeline_->tensors_of(pipeline_->group().rank()));
  data_->record_transfers(transfers_);
}

void PipelinedDataParallel::cut_at(const std::vector<std::size_t>& cuts) {
  const bool are_whole = data_->has_whole_parameters();
  const auto before = state(are_whole);
  pipeline_.reset();
  data_.reset();
  make_stages_at(cuts);
  before.move_to(state(are_whole));
}

void PipelinedDataParallel::record_transfers(std::vector<Transfer>* into) {
  transfers_ = into;
  data_->record_transfers(into);
}

std::vector<HookState> PipelinedDataParallel::hook_state() {
  auto all = data_->hook_state();
  if (!of_stages_.own_buffers) return all;
  const auto of_stage = OwnTensors(pipeline_->buffers()).state();
  std::erase_if(all, [&](const auto& each) { return std::ranges::count(of_stage, each.name, &HookState::name) > 0; });
  for (auto& each : OwnTensors(model_.named_buffers()).state()) all.push_back(std::move(each));
  return all;
}

Variable PipelinedDataParallel::forward(const Variable&) {
  throw Error(Errc::unsupported, "a rank of a pipeline has only some stages of the model");
}

void PipelinedDataParallel::join_pass() {
  throw Error(Errc::unsupported, "a rank without samples takes part in a pipeline's steps by train()");
}

// The ranks of a stage make a parameter whole together, and the first stage that has it sends it to the others.
void PipelinedDataParallel::visit_parameters(const Visitor& visit) {
  const auto all = model_.named_parameters();
  auto next = all.begin();
  const auto receive_until = [&](const std::string& name) {
    for (; next != all.end() && next->first != name; ++next)
      share(next->first, Tensor::empty_like(next->second.value()), visit);
  };
  data_->visit_parameters([&](const std::string& name, const Tensor& value) {
    receive_until(name);
    share(name, value, visit);
    ++next;
  });
  receive_until("");
}

void PipelinedDataParallel::share(const std::string& name, const Tensor& value, const Visitor& visit) {
  const auto& ranks = pipeline_->ranks_of(name);
  const int root = *ranks.begin(), own = pipeline_->group().rank();
  // A copy of a tied parameter is this rank's own: it stays as it is.
  const bool keeps = ranks.contains(own) && root != own;
  pipeline_->group().broadcast(span_of_tensor(keeps ? value.clone() : value), root, {.blocking = true});
  visit(name, value);
}

sharding::ShardedState PipelinedDataParallel::state(bool are_whole) const {
  std::vector<sharding::PlacedTensor> tensors;
  const auto& placements = pipeline_->placements();
  for (const auto& [name, parameter] : model_.named_parameters())
    if (are_whole || !parameter.requires_grad()) tensors.push_back(placements.of_parameter(name));
  for (const auto& [name, buffer] : model_.named_buffers()) tensors.push_back(placements.of_parameter(name));
  return {std::move(tensors), own_tensors(), pipeline_->group()};
}

optim::NamedTensors PipelinedDataParallel::own_tensors() const {
  optim::NamedTensors all;
  for (const auto& [name, parameter] : pipeline_->parameters()) all.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : pipeline_->buffers()) all.emplace_back(name, buffer);
  return all;
}

}  // namespace ddprun::pipeline

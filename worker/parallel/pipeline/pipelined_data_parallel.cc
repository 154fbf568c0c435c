#include "ddprun/worker/parallel/pipeline/pipelined_data_parallel.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/parallel/group_tensors.h"
#include "ddprun/worker/parallel/own_tensors.h"

namespace ddprun::pipeline {
PipelinedDataParallel::PipelinedDataParallel(nn::Module& model, const DeviceMesh& mesh,
                                             const std::vector<std::size_t>& cuts, const Schedule& schedule,
                                             DdpOptions options)
    : model_(model), mesh_(mesh), schedule_(schedule), options_(std::move(options)) {
  make_stages_at(cuts);
}

void PipelinedDataParallel::make_stages_at(const std::vector<std::size_t>& cuts) {
  pipeline_.emplace(model_, cuts, schedule_, mesh_.group("pipeline"));
  ddp_.emplace(model_, mesh_.group("data"), options_of(pipeline_->group().rank()));
  ddp_->record_transfers(transfers_);
}

DdpOptions PipelinedDataParallel::options_of(int rank) const {
  DdpOptions options = options_;
  const auto note = [&](const std::string& name, bool is_trained) {
    const auto& ranks = pipeline_->ranks_of(name);
    if (!ranks.contains(rank))
      options.ignored_parameters.push_back(name);
    else if (options.shard_gradients && is_trained && ranks.size() > 1)
      options.own_buckets.push_back(name);
  };
  for (const auto& [name, parameter] : model_.named_parameters()) note(name, parameter.requires_grad());
  for (const auto& [name, buffer] : model_.named_buffers()) note(name, false);
  return options;
}

void PipelinedDataParallel::cut_at(const std::vector<std::size_t>& cuts) {
  const auto before = state();
  ddp_.reset();
  pipeline_.reset();
  make_stages_at(cuts);
  before.move_to(state());
}

void PipelinedDataParallel::record_transfers(std::vector<Transfer>* into) {
  transfers_ = into;
  ddp_->record_transfers(into);
}

std::vector<HookState> PipelinedDataParallel::hook_state() {
  if (options_.broadcast_buffers) return {};
  return OwnTensors(model_.named_buffers()).state();
}

std::shared_ptr<void> PipelinedDataParallel::evaluated_model() {
  if (options_.broadcast_buffers) return nullptr;
  return OwnTensors(pipeline_->buffers()).replaced_by_first(mesh_.group("data"));
}

Variable PipelinedDataParallel::forward(const Variable&) {
  throw Error(Errc::unsupported, "a rank of a pipeline has some stages of the model alone");
}

void PipelinedDataParallel::visit_parameters(const Visitor& visit) {
  for (const auto& [name, parameter] : model_.named_parameters()) {
    const Tensor& own = parameter.value();
    const Tensor value = own.storage()->is_present() ? own : Tensor::empty(own.shape(), own.dtype());
    const int root = *pipeline_->ranks_of(name).begin();
    // A copy of a tied parameter is this rank's own: it stays as it is.
    const bool keeps = own.storage()->is_present() && root != pipeline_->group().rank();
    const Tensor received = keeps ? value.clone() : value;
    pipeline_->group().broadcast(span_of_tensor(received), root, {.blocking = true});
    visit(name, keeps ? value : received);
  }
}

sharding::ShardedState PipelinedDataParallel::state() const {
  std::vector<sharding::PlacedTensor> tensors;
  const auto& placements = pipeline_->placements();
  for (const auto& [name, parameter] : model_.named_parameters()) tensors.push_back(placements.of_parameter(name));
  for (const auto& [name, buffer] : model_.named_buffers()) tensors.push_back(placements.of_parameter(name));
  return {std::move(tensors), own_tensors(), pipeline_->group()};
}

optim::NamedTensors PipelinedDataParallel::own_tensors() const {
  optim::NamedTensors all;
  for (const auto& [name, parameter] : pipeline_->parameters()) all.emplace_back(name, parameter.value());
  for (const auto& [name, buffer] : pipeline_->buffers()) all.emplace_back(name, buffer);
  return all;
}

void PipelinedDataParallel::collect_parameters() {
  if (mesh_.coordinate("data") > 0) return;
  const optim::NamedTensors whole = state().gather();
  if (!has_whole()) return;
  const std::map<std::string, Tensor> by_name(whole.begin(), whole.end());
  for (auto [name, parameter] : model_.named_parameters())
    if (!parameter.value().storage()->is_present()) parameter.set_value(by_name.at(name));
  for (auto [name, buffer] : model_.named_buffers())
    if (const Tensor& value = by_name.at(name); value.raw() != buffer.raw()) buffer.copy_from(value);
}

void PipelinedDataParallel::drop_whole_parameters() {
  if (!has_whole()) return;
  const auto& foreign = pipeline_->foreign();
  for (const auto& [name, parameter] : model_.named_parameters())
    if (std::ranges::count(foreign, name) > 0) make_absent(parameter);
}

void PipelinedDataParallel::distribute_model() {
  optim::NamedTensors whole;
  if (has_whole()) {
    for (const auto& [name, parameter] : model_.named_parameters()) whole.emplace_back(name, parameter.value());
    for (const auto& [name, buffer] : model_.named_buffers()) whole.emplace_back(name, buffer);
  }
  if (mesh_.coordinate("data") == 0) state().scatter(whole);
  for (const auto& [name, tensor] : own_tensors())
    mesh_.group("data").broadcast(span_of_tensor(tensor), 0, {.blocking = true});
  for (const auto& [name, tensor] : own_tensors()) tensor.storage()->bump_version();
}

}  // namespace ddprun::pipeline

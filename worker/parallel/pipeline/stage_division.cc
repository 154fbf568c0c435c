#include "ddprun/worker/parallel/pipeline/stage_division.h"

#include <algorithm>

#include "ddprun/common/error.h"

namespace ddprun::pipeline {
namespace {

constexpr int tag = 1;  // messages of stages have none such: nothing is handed on to the first one

Span span_of(const Tensor& tensor) {
  Tensor handle = tensor;
  return {handle.raw(), static_cast<std::size_t>(handle.numel()), handle.dtype()};
}

// ".exp_avg" of "fc1.weight.exp_avg"; empty for a parameter itself.
std::string suffix_of(const std::string& tensor, const std::string& entry) {
  return tensor.substr(entry.size());
}

}  // namespace

StageDivision::StageDivision(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group)
    : group_(group) {
  for (const Stage& stage : stages) {
    const auto add = [&](const std::string& name, const Tensor& value, bool learns) {
      Entry& entry = entries_.try_emplace(name, Entry{value.shape(), value.dtype(), learns, {}}).first->second;
      entry.ranks.insert(schedule.rank_of(stage.number));
    };
    for (const auto& [name, parameter] : stage.parameters) add(name, parameter.value(), parameter.requires_grad());
    for (const auto& [name, buffer] : stage.buffers) add(name, buffer, false);
  }
}

const StageDivision::Entry& StageDivision::entry_of(const std::string& name) const {
  if (const auto whole = entries_.find(name); whole != entries_.end()) return whole->second;
  const auto found = entries_.find(name.substr(0, name.rfind('.')));
  if (found == entries_.end()) throw make_error(Errc::internal, "no stage of the pipeline has the tensor {}", name);
  return found->second;
}

std::map<std::string, const StageDivision::Entry*> StageDivision::entries_of(const optim::NamedTensors& tensors) const {
  std::map<std::string, const Entry*> all;
  for (const auto& [name, tensor] : tensors) all[name] = &entry_of(name);
  return all;
}

// The first rank has at least one parameter that learns: what an optimizer keeps of that, it keeps of others too.
optim::NamedTensors StageDivision::whole_like(const optim::NamedTensors& own) const {
  optim::NamedTensors whole;
  if (group_.rank() != 0) return whole;
  std::map<std::string, const Tensor*> kinds;  // by suffix: a tensor of it
  std::map<std::string, const Tensor*> there;
  for (const auto& [name, tensor] : own) {
    there[name] = &tensor;
    const bool is_model = entries_.contains(name);
    kinds.try_emplace(is_model ? "" : suffix_of(name, name.substr(0, name.rfind('.'))), &tensor);
  }
  for (const auto& [suffix, example] : kinds)
    for (const auto& [name, entry] : entries_) {
      if (!suffix.empty() && !entry.learns) continue;
      const auto mine = there.find(name + suffix);
      if (mine != there.end())
        whole.emplace_back(name + suffix, *mine->second);
      else if (suffix.empty())
        whole.emplace_back(name, Tensor::zeros(entry.shape, entry.dtype));
      else
        whole.emplace_back(name + suffix, Tensor::zeros(example->dim() == 0 ? Shape{} : entry.shape, example->dtype()));
    }
  return whole;
}

optim::NamedTensors StageDivision::gather(const optim::NamedTensors& own) const {
  optim::NamedTensors whole = whole_like(own);
  const auto& tensors = group_.rank() == 0 ? whole : own;
  std::map<std::string, Tensor> sorted(tensors.begin(), tensors.end());
  for (const auto& [name, entry] : entries_of(tensors)) {
    const int owner = *entry->ranks.begin();
    if (owner == 0) continue;
    if (group_.rank() == 0)
      group_.recv(span_of(sorted.at(name)), owner, tag, {.blocking = true});
    else if (group_.rank() == owner)
      group_.send(span_of(sorted.at(name).contiguous()), 0, tag, {.blocking = true});
  }
  return whole;
}

void StageDivision::scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const {
  const auto& tensors = group_.rank() == 0 ? whole : own;
  std::map<std::string, Tensor> sorted(tensors.begin(), tensors.end());
  for (const auto& [name, entry] : entries_of(tensors))
    for (const int rank : entry->ranks) {
      if (rank == 0) continue;
      if (group_.rank() == 0)
        group_.send(span_of(sorted.at(name)), rank, tag, {.blocking = true});
      else if (group_.rank() == rank)
        group_.recv(span_of(sorted.at(name)), 0, tag, {.blocking = true});
    }
  for (const auto& [name, tensor] : own) {
    tensor.storage()->bump_version();
    if (group_.rank() == 0 && sorted.at(name).raw() != tensor.raw()) {
      Tensor handle = tensor;
      handle.copy_from(sorted.at(name));
    }
  }
}

}  // namespace ddprun::pipeline

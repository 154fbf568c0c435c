#include "ddprun/worker/parallel/pipeline/stage_division.h"

#include <functional>
#include <sstream>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/collectives.h"

namespace ddprun::pipeline {
namespace {

constexpr int tag = 1;  // messages of stages have none such: nothing is handed on to the first one

Span span_of(const Tensor& tensor) {
  Tensor handle = tensor;
  return {handle.raw(), static_cast<std::size_t>(handle.numel()), handle.dtype()};
}

// One line for each tensor: its type, its number of dimensions, these, and its name, which is the rest.
std::string described(const optim::NamedTensors& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors) {
    text << static_cast<int>(tensor.dtype()) << ' ' << tensor.dim();
    for (const std::int64_t size : tensor.shape().to_vector()) text << ' ' << size;
    text << ' ' << name << '\n';
  }
  return text.str();
}

// The inverse, with zeros for the values of those that are wanted.
optim::NamedTensors zeros_of(const std::string& text, const std::function<bool(const std::string&)>& is_wanted) {
  optim::NamedTensors all;
  std::istringstream lines(text);
  int dtype = 0;
  std::size_t dimensions = 0;
  while (lines >> dtype >> dimensions) {
    std::vector<std::int64_t> sizes(dimensions);
    for (std::int64_t& size : sizes) lines >> size;
    std::string name;
    std::getline(lines.ignore(), name);
    if (is_wanted(name)) all.emplace_back(name, Tensor::zeros(Shape(sizes), static_cast<DType>(dtype)));
  }
  return all;
}

}  // namespace

StageDivision::StageDivision(const std::vector<Stage>& stages, const Schedule& schedule, ProcessGroup& group)
    : group_(group) {
  for (const Stage& stage : stages) {
    const int rank = schedule.rank_of(stage.number);
    for (const auto& [name, parameter] : stage.parameters) ranks_[name].insert(rank);
    for (const auto& [name, buffer] : stage.buffers) ranks_[name].insert(rank);
  }
}

const StageDivision::Ranks& StageDivision::ranks_of(const std::string& name) const {
  if (const auto whole = ranks_.find(name); whole != ranks_.end()) return whole->second;
  const auto found = ranks_.find(name.substr(0, name.rfind('.')));
  if (found == ranks_.end()) throw make_error(Errc::internal, "no stage of the pipeline has the tensor {}", name);
  return found->second;
}

optim::NamedTensors StageDivision::whole_like(const optim::NamedTensors& own) const {
  const auto descriptions = all_gather_bytes(group_, described(own));
  if (group_.rank() != 0) return {};
  optim::NamedTensors whole = own;
  for (int rank = 1; rank < group_.size(); ++rank)
    for (auto& each : zeros_of(descriptions[static_cast<std::size_t>(rank)],
                               [&](const std::string& name) { return first_rank(name) == rank; }))
      whole.push_back(std::move(each));
  return whole;
}

optim::NamedTensors StageDivision::gather(const optim::NamedTensors& own) const {
  optim::NamedTensors whole = whole_like(own);
  const auto& tensors = group_.rank() == 0 ? whole : own;
  const std::map<std::string, Tensor> sorted(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : sorted) {
    const int owner = first_rank(name);
    if (owner == 0) continue;
    if (group_.rank() == 0)
      group_.recv(span_of(tensor), owner, tag, {.blocking = true});
    else if (group_.rank() == owner)
      group_.send(span_of(tensor.contiguous()), 0, tag, {.blocking = true});
  }
  return whole;
}

void StageDivision::scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const {
  const auto& tensors = group_.rank() == 0 ? whole : own;
  const std::map<std::string, Tensor> sorted(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : sorted)
    for (const int rank : ranks_of(name)) {
      if (rank == 0) continue;
      if (group_.rank() == 0)
        group_.send(span_of(tensor), rank, tag, {.blocking = true});
      else if (group_.rank() == rank)
        group_.recv(span_of(tensor), 0, tag, {.blocking = true});
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

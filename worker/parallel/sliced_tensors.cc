#include "worker/parallel/sliced_tensors.h"

#include "worker/parallel/group_tensors.h"

namespace ddprun {

void SlicedTensors::divide(nn::Module& model, const std::string& parameter, Slicing slicing) {
  Variable variable = model.parameter(parameter);
  variable.set_value(part_of(variable.value(), slicing, group_.rank(), group_.size()));
  slicings_.emplace(parameter, slicing);
}

std::vector<std::string> SlicedTensors::names() const {
  std::vector<std::string> all;
  for (const auto& [name, slicing] : slicings_) all.push_back(name);
  return all;
}

Tensor SlicedTensors::whole(const std::string& parameter, const Tensor& own) const {
  const Slicing* sliced = slicing(parameter);
  if (!sliced) return own;
  const int ranks = group_.size();
  Tensor all = Tensor::empty({ranks * own.numel()}, own.dtype());
  group_.allgather(span_of_tensor(own), span_of_tensor(all), {.blocking = true});
  Tensor result = Tensor::empty(whole_shape(own.shape(), *sliced, ranks), own.dtype());
  for (int rank = 0; rank < ranks; ++rank)
    put_part(all.slice(0, rank * own.numel(), own.numel()).reshape(own.shape()), *sliced, rank, ranks, result);
  return result;
}

}  // namespace ddprun

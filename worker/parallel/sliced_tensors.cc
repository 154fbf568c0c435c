#include "ddprun/worker/parallel/sliced_tensors.h"

#include "ddprun/worker/parallel/group_tensors.h"

namespace ddprun {

void SlicedTensors::divide(nn::Module& model, const std::string& parameter, Slicing slicing) {
  Variable variable = model.parameter(parameter);
  variable.set_value(part_of(variable.value(), slicing, group_.rank(), group_.size()));
  slicings_.emplace(parameter, slicing);
}

// Of a parameter, or of what an optimizer has of its shape.
const Slicing* SlicedTensors::slicing_of(const std::string& name, const Tensor& tensor) const {
  auto found = slicings_.find(name);
  if (found == slicings_.end()) found = slicings_.find(name.substr(0, name.rfind('.')));
  return found == slicings_.end() || tensor.dim() == 0 ? nullptr : &found->second;
}

Tensor SlicedTensors::whole(const std::string& parameter, const Tensor& own) const {
  const Slicing* slicing = slicing_of(parameter, own);
  if (!slicing) return own;
  const int ranks = group_.size();
  Tensor all = Tensor::empty({ranks * own.numel()}, own.dtype());
  group_.allgather(span_of_tensor(own), span_of_tensor(all), {.blocking = true});
  Tensor result = Tensor::empty(whole_shape(own.shape(), *slicing, ranks), own.dtype());
  for (int rank = 0; rank < ranks; ++rank)
    put_part(all.slice(0, rank * own.numel(), own.numel()).reshape(own.shape()), *slicing, rank, ranks, result);
  return result;
}

optim::NamedTensors SlicedTensors::whole_like(const optim::NamedTensors& own) const {
  optim::NamedTensors whole;
  if (group_.rank() != 0) return whole;
  for (const auto& [name, tensor] : own) {
    const Slicing* slicing = slicing_of(name, tensor);
    whole.emplace_back(
        name, slicing ? Tensor::zeros(whole_shape(tensor.shape(), *slicing, group_.size()), tensor.dtype()) : tensor);
  }
  return whole;
}

optim::NamedTensors SlicedTensors::gather(const optim::NamedTensors& own) const {
  optim::NamedTensors whole = whole_like(own);
  const int ranks = group_.size();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, part] = own[i];
    const Slicing* slicing = slicing_of(name, part);
    if (!slicing) continue;
    Tensor all = group_.rank() == 0 ? Tensor::empty({ranks * part.numel()}, part.dtype()) : Tensor();
    const Span to = all.defined() ? span_of_tensor(all) : Span{.dtype = part.dtype()};
    group_.gather(span_of_tensor(part), to, 0, {.blocking = true});
    if (!all.defined()) continue;
    for (int rank = 0; rank < ranks; ++rank)
      put_part(all.slice(0, rank * part.numel(), part.numel()).reshape(part.shape()), *slicing, rank, ranks,
               whole[i].second);
  }
  return whole;
}

void SlicedTensors::scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const {
  const int ranks = group_.size();
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, part] = own[i];
    const Slicing* slicing = slicing_of(name, part);
    if (!slicing) {
      // A collected state is in memory of its own.
      if (group_.rank() == 0 && whole[i].second.raw() != part.raw()) Tensor(part).copy_from(whole[i].second);
      group_.broadcast(span_of_tensor(part), 0, {.blocking = true});
    } else if (group_.rank() == 0) {
      Tensor all = Tensor::empty({ranks * part.numel()}, part.dtype());
      for (int rank = 0; rank < ranks; ++rank)
        all.slice(0, rank * part.numel(), part.numel())
            .copy_from(part_of(whole[i].second, *slicing, rank, ranks).reshape({part.numel()}));
      group_.scatter(span_of_tensor(all), span_of_tensor(part), 0, {.blocking = true});
    } else {
      group_.scatter(Span{.dtype = part.dtype()}, span_of_tensor(part), 0, {.blocking = true});
    }
    part.storage()->bump_version();
  }
}

}  // namespace ddprun

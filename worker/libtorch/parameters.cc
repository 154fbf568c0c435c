#include "worker/libtorch/parameters.h"

#include <algorithm>
#include <numeric>

#include "common/error.h"

// No function of fmt is called here: PyTorch's headers may bring another version of it than ddprun was built with.
namespace ddprun::torch {
namespace {

[[noreturn]] void unsupported(const std::string& name, const std::string& what) {
  throw Error(Errc::unsupported, name + " " + what);
}

DType dtype_of(const std::string& name, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kChar:
      return DType::int8;
    case at::kByte:
    case at::kBool:
      return DType::uint8;
    case at::kInt:
      return DType::int32;
    case at::kLong:
      return DType::int64;
    default:
      unsupported(name,
                  std::string("is of type ") + c10::toString(tensor.scalar_type()) + ", which ddprun does not send");
  }
}

NamedTensors named(const ::torch::OrderedDict<std::string, at::Tensor>& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) result.emplace_back(item.key(), item.value());
  return result;
}

}  // namespace

NamedTensors all_parameters(const ::torch::nn::Module& module) {
  return named(module.named_parameters());
}
NamedTensors all_buffers(const ::torch::nn::Module& module) {
  return named(module.named_buffers());
}
NamedTensors trainable_parameters(const ::torch::nn::Module& module) {
  NamedTensors result;
  for (auto& [name, tensor] : all_parameters(module))
    if (tensor.requires_grad()) result.emplace_back(name, tensor);
  return result;
}

std::vector<ParameterRef> references(const NamedTensors& tensors) {
  std::vector<ParameterRef> result;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.device().is_cpu()) unsupported(name, "is on " + tensor.device().str() + ", and has to be on the CPU");
    if (tensor.layout() != at::kStrided) unsupported(name, "is sparse");
    if (!tensor.is_contiguous()) unsupported(name, "is not contiguous");
    result.push_back({name, tensor.sizes().vec(), dtype_of(name, tensor), tensor.data_ptr()});
  }
  return result;
}

std::vector<int> balanced_owners(const std::vector<at::Tensor>& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parameters[a].numel() > parameters[b].numel(); });
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
  std::vector<int> owners(parameters.size());
  for (const std::size_t p : order) {
    const auto least = std::min_element(elements.begin(), elements.end());
    owners[p] = static_cast<int>(least - elements.begin());
    *least += parameters[p].numel();
  }
  return owners;
}

void share_parts(ProcessGroup& group, const std::vector<at::Tensor>& parameters, const std::vector<int>& owners) {
  std::vector<WorkPtr> works;
  for (int rank = 0; rank < group.size(); ++rank) {
    NamedTensors part;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      if (owners[p] == rank) part.emplace_back("parameter " + std::to_string(p), parameters[p]);
    std::vector<Span> spans;
    for (const auto& each : references(part)) spans.push_back(each.span());
    if (!spans.empty()) works.push_back(group.broadcast_coalesced(spans, rank));
  }
  for (const auto& work : works) work->wait();
}

}  // namespace ddprun::torch

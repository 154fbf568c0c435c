#include "worker/parallel/group_tensors.h"

#include <memory>
#include <type_traits>

namespace ddprun {
namespace {

template <class Value>
const Tensor& tensor_of(const Value& value) {
  if constexpr (std::is_same_v<Value, Variable>)
    return value.value();
  else
    return value;
}

template <class Named>
std::vector<ParameterRef> references_of(const Named& named) {
  std::vector<ParameterRef> all;
  for (const auto& [name, value] : named) all.push_back(reference(name, tensor_of(value)));
  return all;
}

}  // namespace

std::int32_t memory_of(Device device) {
  return device.type == DeviceType::cuda ? device.index : host_memory;
}

ParameterRef reference(const std::string& name, Tensor tensor) {
  return {name,         tensor.shape().to_vector(), tensor.dtype(),
          tensor.raw(), memory_of(tensor.device()), compute_stream(tensor.device())};
}

std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Variable>>& parameters) {
  return references_of(parameters);
}

std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Tensor>>& buffers) {
  return references_of(buffers);
}

Span span_of_tensor(Tensor tensor) {
  return {tensor.raw(), static_cast<std::size_t>(tensor.numel()), tensor.dtype(), memory_of(tensor.device())};
}

Tensor tensor_of_span(const Span& span) {
  const Device device = span.device == host_memory ? Device{} : Device{DeviceType::cuda, span.device};
  return Tensor::wrap(span.data, {static_cast<std::int64_t>(span.count)}, span.dtype, nullptr, device);
}

void align_ranks(ProcessGroup& group, const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::vector<std::pair<std::string, Tensor>>& buffers) {
  align_ranks(group, references(parameters), references(buffers));
}

Tensor registered_tensor(ProcessGroup& group, std::size_t count, DType dtype) {
  const auto buffer = std::make_shared<RegisteredBuffer>(group.allocate(count * size_of(dtype)));
  return Tensor::wrap(buffer->data(), {static_cast<std::int64_t>(count)}, dtype,
                      std::shared_ptr<void>(buffer, buffer->data()));
}

}  // namespace ddprun

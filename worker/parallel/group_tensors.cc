#include "ddprun/worker/parallel/group_tensors.h"

#include <memory>
#include <type_traits>

#include "ddprun/worker/reducer/model_check.h"

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

ParameterRef reference(const std::string& name, Tensor tensor) {
  return {name, tensor.shape().to_vector(), tensor.dtype(), tensor.raw()};
}

std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Variable>>& parameters) {
  return references_of(parameters);
}

std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Tensor>>& buffers) {
  return references_of(buffers);
}

Span span_of_tensor(Tensor tensor) {
  return {tensor.raw(), static_cast<std::size_t>(tensor.numel()), tensor.dtype()};
}

void broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root) {
  if (tensors.empty()) return;
  std::vector<Span> spans;
  for (const auto& each : tensors) spans.push_back(each.span());
  group.broadcast_coalesced(spans, root, {.blocking = true});
}

void align_ranks(ProcessGroup& group, const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::vector<std::pair<std::string, Tensor>>& buffers) {
  auto everything = references(parameters);
  for (auto& buffer : references(buffers)) everything.push_back(std::move(buffer));
  check_same_model(group, everything);
  broadcast(group, everything);
}

Tensor registered_tensor(ProcessGroup& group, std::size_t count, DType dtype) {
  const auto buffer = std::make_shared<RegisteredBuffer>(group.allocate(count * size_of(dtype)));
  return Tensor::wrap(buffer->data(), {static_cast<std::int64_t>(count)}, dtype,
                      std::shared_ptr<void>(buffer, buffer->data()));
}

}  // namespace ddprun

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/reducer/model_sync.h"
#include "worker/reducer/parameter_ref.h"

namespace ddprun {

// Conversions of tensors for a process group and the reducer. References and spans are valid as long as the tensors.
ParameterRef reference(const std::string& name, Tensor tensor);
std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Variable>>& parameters);
std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Tensor>>& buffers);
// Returns the value of Span::device for a device.
std::int32_t memory_of(Device device);
Span span_of_tensor(Tensor tensor);
// Returns a tensor on the memory of a span, which outlives the tensor.
Tensor tensor_of_span(const Span& span);

// See align_ranks() of model_sync.h; versions of tensors do not change.
void align_ranks(ProcessGroup& group, const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::vector<std::pair<std::string, Tensor>>& buffers);

// Makes an uninitialized tensor of one dimension in registered memory, which is the cheapest for the group.
Tensor registered_tensor(ProcessGroup& group, std::size_t count, DType dtype);

}  // namespace ddprun

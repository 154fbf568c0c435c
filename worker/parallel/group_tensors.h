#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/autograd/variable.h"
#include "worker/comm/process_group.h"
#include "worker/reducer/parameter_ref.h"

namespace ddprun {

// Conversions of tensors for a process group and the reducer. References and spans are valid as long as the tensors.
// Threads: one at a time for a group. Errors: collective functions throw the group's; the tensors' values are of no use
// then.
ParameterRef reference(const std::string& name, Tensor tensor);
std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Variable>>& parameters);
std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Tensor>>& buffers);
// Returns the value of Span::device for a device.
std::int32_t memory_of(Device device);
Span span_of_tensor(Tensor tensor);
// Returns a tensor on the memory of a span, which outlives the tensor.
Tensor tensor_of_span(const Span& span);

// Copies root's values to all ranks; versions of tensors do not change. Collective.
void broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root = 0);
// The variant that waits for no device if the group can do without: what is queued on it from now on runs afterwards
// (Work::order()). in_progress, if set, has to be waited for before the tensors are released.
void start_broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root, WorkPtr& in_progress);
// Makes all ranks equal to rank 0, once their models are known to match. Collective. Throws as check_same_model() does.
void align_ranks(ProcessGroup& group, const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::vector<std::pair<std::string, Tensor>>& buffers);

// Makes an uninitialized tensor of one dimension in registered memory, which is the cheapest for the group.
Tensor registered_tensor(ProcessGroup& group, std::size_t count, DType dtype);

}  // namespace ddprun

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/parameter_ref.h"

namespace ddprun {

// Tensors as a process group and the reducer take them. References and spans are valid as long as the tensors.
// Threads: one at a time for a group. Errors: collective functions throw the group's; the tensors have values of no use
// then.
ParameterRef reference(const std::string& name, Tensor tensor);
std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Variable>>& parameters);
std::vector<ParameterRef> references(const std::vector<std::pair<std::string, Tensor>>& buffers);
// Span::device
std::int32_t memory_of(Device device);
Span span_of_tensor(Tensor tensor);
// The memory of a span, which outlives the tensor.
Tensor tensor_of_span(const Span& span);

// Root's values to all ranks; versions of tensors do not change. Collective.
void broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root = 0);
// The same without a wait for a device where the group can do so: what is queued on it from now on comes behind
// (Work::order()). in_progress, if there is any, has to be waited for before the tensors are released.
void start_broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root, WorkPtr& in_progress);
// All ranks equal to rank 0, once it is certain that they mean the same. Collective. Throws as check_same_model().
void align_ranks(ProcessGroup& group, const std::vector<std::pair<std::string, Variable>>& parameters,
                 const std::vector<std::pair<std::string, Tensor>>& buffers);

// One dimension, not initialised, of registered memory, which the group reads and writes at the least cost.
Tensor registered_tensor(ProcessGroup& group, std::size_t count, DType dtype);

}  // namespace ddprun

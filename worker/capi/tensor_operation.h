#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "worker/capi/ddprun.h"
#include "worker/capi/epilogue.h"
#include "worker/comm/process_group.h"

namespace ddprun::capi {

// Returns PyTorch's name of an operation, such as all_reduce; null if there is no such operation.
const char* name_of_operation(std::int32_t operation);

// The arguments of one operation of torch.distributed on tensors.
struct TensorCall {
  std::int32_t operation;
  std::span<const ddprun_tensor> inputs, outputs;
  const ddprun_tensor_arguments& arguments;
};

// An operation that has been started. epilogue is null if nothing is left to do after its end.
struct StartedOperation {
  WorkPtr work;
  std::shared_ptr<Epilogue> epilogue;
};

// Checks the arguments as torch.distributed does, and starts the operation. Throws Errc::usage, Errc::unsupported or
// WrongType.
StartedOperation start_on_tensors(ProcessGroup& group, const TensorCall& call, const OpOptions& options);

}  // namespace ddprun::capi

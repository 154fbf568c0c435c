#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"
#include "worker/tensor/tensor.h"

namespace ddprun {

// Tensors of a model that differ from rank to rank: running statistics that are not shared, ignored parameters.
//
// Ownership: handles on the tensors' memory. Threads: one at a time. Errors: those of the group.
class OwnTensors {
 public:
  using Named = std::vector<std::pair<std::string, Tensor>>;
  explicit OwnTensors(Named tensors) : tensors_(std::move(tensors)) {}

  // Returns the state for a checkpoint, "own/bn1.running_mean": valid as long as the tensors' memory.
  std::vector<HookState> state() const;
  // While the result exists, all ranks have rank 0's values; then each has its own again. Null if there are no tensors.
  // The group outlives the result. Collective.
  std::shared_ptr<void> replaced_by_first(ProcessGroup& group) const;

 private:
  class Replacement;

  Named tensors_;
};

}  // namespace ddprun

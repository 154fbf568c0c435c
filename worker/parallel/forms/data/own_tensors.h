#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/forms/stage_pass.h"
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
  // Those of this rank's stages that are ignored, and with it all buffers that are not broadcast.
  OwnTensors(const nn::Module& model, const StageTensors& stages, const std::vector<std::string>& ignored,
             bool broadcast_buffers);

  // Returns the state for a checkpoint, "own/bn1.running_mean": valid as long as the tensors' memory.
  std::vector<HookState> state() const;
  // While the result exists, all ranks have rank 0's values; then each has its own again. Null if there are no tensors.
  // The group outlives the result. Collective.
  std::shared_ptr<void> replaced_by_first(ProcessGroup& group) const;

 private:
  class Replacement;

  Named tensors_;
};

// Throws Errc::usage for a name of none of the model's parameters and buffers.
void check_ignored(const nn::Module& model, const std::vector<std::string>& ignored);
// Returns the paths of the model's parameters that are ignored.
std::vector<std::string> ignored_parameters_of(const nn::Module& model, const std::vector<std::string>& ignored);

// Returns those of a model's named parameters or buffers that this rank has and that are not ignored.
template <class Named>
Named common_tensors(Named all, const StageTensors& stages, const std::vector<std::string>& ignored) {
  std::erase_if(all, [&](const auto& each) { return std::ranges::count(ignored, each.first) > 0; });
  return stages.present(std::move(all));
}

}  // namespace ddprun

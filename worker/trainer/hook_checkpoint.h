#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ddprun/worker/checkpoint/checkpoint.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/comm_hook.h"

// The state of a communication hook in a checkpoint. Each rank has its own: an error-feedback memory is what that rank
// has not sent yet.
namespace ddprun::trainer {

// Every rank's state, at rank 0, which holds all of it in memory; empty elsewhere. Collective.
class GatheredHookState {
 public:
  GatheredHookState(const std::vector<HookState>& own, ProcessGroup& group);

  // Valid as long as this object.
  const std::vector<checkpoint::TensorView>& views() const { return views_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<checkpoint::TensorView> views_;
};

// Writes a checkpoint's state into the hooks of all ranks. found: at rank 0; null if there is none, or elsewhere. A
// checkpoint of as many ranks gives each rank its own. From another number of ranks, each gets the mean over the ranks
// that there were, which keeps the sum that is still to be sent in proportion to the average; integers are rank 0's. A
// state that does not fit (another hook, other buckets) is left out, with a warning. Collective.
void restore_hook_state(const checkpoint::Found* found, const std::vector<HookState>& own, ProcessGroup& group);

}  // namespace ddprun::trainer

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

// Each rank's own part of a checkpoint: the state of a communication hook, such as an error-feedback memory, which
// is what that rank has not sent yet; the parameters and the optimizer of local SGD; buffers that are not shared.
namespace ddprun::trainer {

// Every rank's state, at rank 0, which holds all of it in memory; empty at other ranks. Collective.
// Ownership: a copy of the states, to which views() refers.
class GatheredHookState {
 public:
  GatheredHookState(const std::vector<HookState>& own, ProcessGroup& group);

  const std::vector<checkpoint::TensorView>& views() const { return views_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<checkpoint::TensorView> views_;
};

// Writes a checkpoint's state into the hooks of all ranks. A checkpoint of as many ranks gives each rank its own. From
// another number of ranks, each gets the mean over the saved ranks, which keeps the sum still to be sent in proportion
// to the average; integers are rank 0's. States of one kind, which is the text before the first '/' of their names, are
// left out if one does not fit (another hook, other buckets), with a warning. Collective.
void restore_hook_state(const checkpoint::Found& found, const std::vector<HookState>& own, ProcessGroup& group);

}  // namespace ddprun::trainer

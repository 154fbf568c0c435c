#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun::trainer {

// Holds what a communication hook keeps at one rank from step to step, such as the error of what it has not sent yet,
// for the time when a step fails or the process group ends: a hook ends with its group.
//
// Ownership: borrows the memory of the states from begin() to end(). Threads: one at a time. Errors: those of the
// group; begin() then counts as not called.
class HookMemory {
 public:
  enum class Begun {
    unchanged,  // all ranks have what they had, or there are no states
    mean,       // some have the mean over the others
    anew,       // none has any
  };

  // states: those of the hook of a new group, the same at all ranks of group but for their values. Gives them the
  // values that they had in the group before. A rank that has none gets the mean over those that have, and their
  // integers; if no rank has any, the states stay as they are. Returns the same at all ranks. Collective, unless there
  // are no states.
  Begun begin(std::vector<HookState> states, ProcessGroup& group);
  // To be called before each step.
  void save();
  // To be called if it has failed: gives the states the values before it.
  void undo();
  // To be called between two steps, before the group ends.
  void end();
  // To be called before begin() if its states have values from elsewhere, as from a checkpoint: these count.
  void take(std::vector<HookState> states);
  // To be called if this rank goes on after a step of others that it has not made.
  void forget() { saved_.clear(); }

 private:
  struct Saved {
    std::string name;
    std::vector<std::byte> bytes;
  };
  bool fits(const std::vector<HookState>& states) const;

  std::vector<HookState> states_;  // empty before begin(), and after end()
  std::vector<Saved> saved_;
};

}  // namespace ddprun::trainer

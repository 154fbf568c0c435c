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
  // To be called if it has failed: gives the states the values before it, and keeps those that they have.
  void undo();
  // To be called after undo(): takes that back.
  void redo();
  // To be called between two steps, before the group ends. begin() then gives the states of the next group these
  // values, or those that undo() has kept if that is chosen.
  void end();
  void choose_undone(bool undone) { chooses_undone_ = undone; }
  // To be called before begin() if its states have values from elsewhere, as from a checkpoint: these count.
  void take(std::vector<HookState> states);
  // To be called if this rank goes on after a step of others that it has not made.
  void forget();

 private:
  struct Saved {
    std::string name;
    std::vector<std::byte> bytes;
  };
  static bool fits(const std::vector<HookState>& states, const std::vector<Saved>& values);
  void save_to(std::vector<Saved>& values) const;
  void set(const std::vector<Saved>& values);

  std::vector<HookState> states_;  // empty before begin(), and after end()
  std::vector<Saved> saved_;
  std::vector<Saved> undone_;  // those after the step that undo() has taken back
  bool chooses_undone_ = false;
};

}  // namespace ddprun::trainer

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// Decides which step holds after a fault, and who copies the state from whom. Pure; every rank has a copy of the state.
namespace ddprun::trainer {

// The position of a new group's member in the run: the state after this optimizer step. None: no usable state, as in a
// process that has just been started, or one that was interrupted while it copied.
using Position = std::optional<std::int64_t>;

// The members' work before they train on.
struct Catchup {
  std::int64_t step = 0;     // the step that holds: the newest that a member has applied
  int source = 0;            // the lowest rank that has applied it
  std::vector<int> lagging;  // the ranks that copy the state from source, in order
  friend bool operator==(const Catchup&, const Catchup&) = default;
};

// positions: by rank. A step that one member has applied holds, since its gradients were those of all ranks. Returns
// none if no member has a state.
std::optional<Catchup> compare_positions(std::span<const Position> positions);

}  // namespace ddprun::trainer

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// Which step stands after a fault, and who copies the state from whom. Pure; for state of which every rank has a copy.
namespace ddprun::trainer {

// What a member of a new group has of the run: the state after this optimizer step. None: no state that could be used,
// as in a process that has just been started, or one that was interrupted while it copied.
using Position = std::optional<std::int64_t>;

// What the members do before they train on.
struct Catchup {
  std::int64_t step = 0;     // that stands: the newest that a member has applied
  int source = 0;            // the lowest rank that has applied it
  std::vector<int> lagging;  // the ranks that copy the state from source, in order
  friend bool operator==(const Catchup&, const Catchup&) = default;
};

// positions: by rank. A step that one member has applied stands, since its gradients were those of all ranks. None:
// no member has a state.
std::optional<Catchup> compare_positions(std::span<const Position> positions);

}  // namespace ddprun::trainer

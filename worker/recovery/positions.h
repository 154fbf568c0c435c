#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Decides which step holds after a fault, and who gets the state from whom. Pure.
namespace ddprun {

// The position of a process in the run: the state after this optimizer step. None: no usable state, as in a process
// that has just been started, or one that was interrupted while it copied.
using Position = std::optional<std::int64_t>;

// A part of the state after a step, at the process that holds it.
struct HeldPart {
  std::int64_t step = 0;
  int part = 0;
  bool applied = true;  // the process has applied the step last; false: it has kept a copy
  // The process had all that the step needs, and has applied it to this part after the group had failed: it does not
  // know whether others have applied it. Only with applied.
  bool ready = false;
  friend bool operator==(const HeldPart&, const HeldPart&) = default;
};

// Describes what a process knows and holds of the state.
struct Holdings {
  // By rank of the process group in which the state was trained, its part of the state: ranks with the same number have
  // the same part. {-1}: every rank has all of it. Empty: unknown, as in a process that has just been started.
  std::vector<int> parts = {};
  std::vector<HeldPart> held = {};
  std::int64_t reached = 0;     // the last step that the process has applied
  std::int64_t confirmed = -1;  // the last step of which all ranks had copies, as the process knows
  // The process holds these parts of the same state as other groups had divided it: copies stay until all ranks have
  // those of their present parts. These have no earlier ones.
  std::vector<Holdings> earlier = {};
  std::int64_t events_done = -1;  // the last step that it has applied, if it has had all events of it; otherwise -1
  // How often the ranks of that group had divided the state anew since it began. Each group begins as one of its size.
  int moves = 0;

  friend bool operator==(const Holdings&, const Holdings&) = default;
};

// Returns those of a process where every rank has the whole state.
Holdings whole_state(Position position);

// One line of text without its end, and the inverse, which throws Errc::protocol.
std::string encode(const Holdings& holdings);
Holdings decode_holdings(std::string_view text);

// Where the members of a new group get the state from.
enum class StateSource : std::uint8_t {
  applied,     // the step stands: for each part, a member has applied it
  copies,      // members have kept copies of all parts
  checkpoint,  // none of these
};

// The members' work before they train on.
struct Catchup {
  std::int64_t step = 0;     // the step that holds
  int source = 0;            // the lowest rank that has a part of its state
  std::vector<int> lagging;  // the ranks that get their part of the state from another one, in order
  StateSource from = StateSource::applied;
  std::vector<int> sources = {};  // by rank, the one that has its part: itself, unless it lags
  // Set instead of lagging and sources if the group before had another size, or had divided the state anew, so that
  // parts are others now: by rank of that group, the one that has its part now.
  std::vector<int> holders = {};
  std::int64_t reached = 0;  // the last step that any member has applied: later ones than step are repeated
  bool repeats = true;       // the events of the step that stands are repeated: a process may not have had all of them
  int moves = 0;             // those of the parts: see Holdings
  friend bool operator==(const Catchup&, const Catchup&) = default;
};

// processes: by rank of the new group. The newest step holds for which there is every part of the state, as the members
// have applied it or as they have kept it; if both are of one step, as they have applied it. Parts that are ready count
// if a member has applied the step without them. Copies count once a member knows that all ranks had them: until then
// some may not have had the events of that step, and earlier ones exist.
// The events of a step that stands are done if rank 0 and all others that have applied it have had them; ranks whose
// parts were ready get them as those do that lag.
// A group of another size than the one before, which divided the state in another way, may have members that were not
// in that; so may one of the same size, if the one before has divided the state anew. Returns none if there is no such
// step.
std::optional<Catchup> compare_positions(std::span<const Holdings> processes);

}  // namespace ddprun

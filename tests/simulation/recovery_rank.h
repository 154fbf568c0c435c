#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/recovery/recovery_keys.h"
#include "worker/recovery/recovery_state.h"

// The ranks of a recovery_schedule, dead ones as well, and their groups. Plain values.
namespace ddprun::testing {

using Digest = std::uint64_t;

inline Digest after_step(Digest before, std::int64_t step) {
  return (before ^ static_cast<Digest>(step)) * 0x9E3779B97F4A7C15u + 1;
}

// A part of the state that a rank keeps, and does not train.
struct Kept {
  HeldPart held;
  Digest digest;
};

// A process of a rank: the real RecoveryState, and what the simulated training has.
struct Rank {
  Rank(int own_number, std::uint64_t joined_in, Position own, bool has_whole)
      : number(own_number),
        name(member_name(own_number, joined_in)),
        state(name, has_whole ? whole_state(own) : Holdings{}, joined_in > 0 ? joined_in - 1 : 0,
              has_whole ? std::nullopt : std::optional(RecoveryState::Layout{[](int) { return true; }})),
        request(RecoveryState::Train{}) {}

  int number;
  std::string name;
  RecoveryState state;
  RecoveryState::Request request;
  std::optional<Digest> digest;  // nullopt: it has no state
  std::int64_t step = 0;         // step of the digest
  bool alive = true;
  bool frozen = false;
  bool knows_others = false;  // it has been in a group
  bool finished = false;
  bool left = false;  // in order, or as its agent stops it: it is not alive any more
  // While it goes on in another group in order: the step after which it does, and the deaths until then.
  std::optional<std::pair<std::int64_t, int>> changes;
  bool owes_effects = false;  // the effects of the step are due before it contributes to the next one
  int operation = 0;          // the one to which it contributed last in its group
  bool waits = false;         // it waits for that operation
  // Where ranks have parts of the state:
  std::vector<Kept> kept;
  bool ready = false;           // it has what its next step takes, and waits for the others to have it
  std::int64_t confirmed = -1;  // the step of the last copies that all ranks had
  std::vector<int> parts;       // by rank, as in the last group; empty: it has been in none
  bool owes_copies = true;      // it keeps copies before its next step
  bool exchanged = false;       // the first of two operations of a restoration, or of copies, is done
};

// The group of a plan.
struct Group {
  std::map<std::string, int> contributed;  // number of operations, by member
  std::set<int> change_requests;           // the operations by which all ranks learn of a change
  std::map<std::pair<std::string, int>, Holdings> positions;
  std::set<std::string> formed;
  std::map<std::pair<std::string, int>, Digest> sent;            // parts that were exchanged, by sender and operation
  std::map<std::pair<std::string, int>, std::vector<Kept>> all;  // what each member has when it restores
  std::set<std::string> have_copies;
  std::set<std::string> resumed;  // members that have trained on
  std::set<std::string> lost;     // members that it has lost as frozen or cut off, so that its operations fail
};

}  // namespace ddprun::testing

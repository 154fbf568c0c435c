#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "worker/parallel/stored/stored_state.h"

namespace ddprun::stored {

// The text of placements.json (worker/checkpoint/FORMAT.md).
std::string to_json(const StoredState& state);

// The size of the state in the files of a checkpoint. A state of more ranks or bytes is damaged, and is refused before
// it takes the time and the memory of its size.
struct StoredLimits {
  int ranks = std::numeric_limits<int>::max();
  std::uint64_t bytes = std::numeric_limits<std::int64_t>::max();
};

// Throws Errc::io naming source and what is wrong: a member, or a tensor with a placement that it cannot have.
StoredState stored_state_from_json(std::string_view text, const std::string& source, const StoredLimits& limits = {});

}  // namespace ddprun::stored

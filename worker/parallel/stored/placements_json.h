#pragma once

#include <string>
#include <string_view>

#include "worker/parallel/stored/stored_state.h"

namespace ddprun::stored {

// The text of placements.json (worker/checkpoint/FORMAT.md).
std::string to_json(const StoredState& state);
// Throws Errc::io naming source and what is wrong: a member, or a tensor with a placement that it cannot have.
StoredState stored_state_from_json(std::string_view text, const std::string& source);

}  // namespace ddprun::stored

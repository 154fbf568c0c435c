#pragma once

#include <vector>

#include "worker/comm/operations/call.h"

namespace ddprun::testing {

// Executes one collective for all its ranks in the simplest way: the reference that other back ends are compared with.
// calls[r] is rank r's call; they have to agree. Reductions combine the ranks' values in rank order. Throws
// Errc::mismatch naming both ranks when one sends another a different size in all_to_allv than that one expects.
void execute_reference(const std::vector<comm::Call>& calls);

}  // namespace ddprun::testing

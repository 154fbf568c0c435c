#pragma once

#include <vector>

#include "ddprun/worker/comm/operations/call.h"

namespace ddprun::comm {

// Carries out one collective for all its ranks, whose calls agree, in the plainest way: the oracle. calls[r] is rank
// r's. Reductions fold the ranks' values in rank order. Throws Errc::mismatch naming both sides when what a rank sends
// another in all_to_allv is not what that one expects.
void carry_out_plainly(const std::vector<Call>& calls);

}  // namespace ddprun::comm

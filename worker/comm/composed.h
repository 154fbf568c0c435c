#pragma once

#include "ddprun/worker/comm/transport.h"

namespace ddprun::comm {

// Carries a collective out on a transport, giving it what it is spared: a premultiplied sum becomes a sum of values
// multiplied here. Blocks; throws what the transport throws. rank: this one.
void carry_out_on(Transport& transport, const Collective& collective, int rank);

}  // namespace ddprun::comm

#pragma once

#include "ddprun/worker/comm/call/checked_call.h"
#include "ddprun/worker/comm/transport/transport.h"

// Operations made of others, for all back ends in one place. Blocking; they throw what the transport throws.
namespace ddprun::comm {

// Carries a collective out on a transport and does what transports are spared: an allreduce or reduce that is not in
// place, the factor of a premultiplied sum, many spans.
void carry_out_on(Transport& transport, const Collective& collective, Seat seat);

// Whether carry_out_on() would pass it on unchanged.
bool carried_out_as_it_is(const Transport& transport, const Collective& collective, Seat seat);

// allgather, gather, scatter and all_to_all, in equal or unequal parts, as sends and receives between all pairs that
// have something for each other, all at once. For a transport whose transfers go on by themselves.
void carry_out_by_transfers(Transport& transport, const Collective& collective, Seat seat);

}  // namespace ddprun::comm

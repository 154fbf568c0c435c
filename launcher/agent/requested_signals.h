#pragma once

#include <string>

#include "launcher/workers/watchdog.h"
#include "launcher/workers/worker_group.h"
#include "rendezvous/agent_relay.h"

// Signals to single workers on request. Each is noted as the reason of the failure that may follow.
namespace ddprun {

// Answers a watchdog timer that has expired: sends its process the signal that it asked for, with a line. Signals only
// processes of these workers, since a request may name any process by mistake.
void act_on_expired(const ExpiredTimer& timer, WorkerGroup& workers);

// Sends a worker's process a signal. Returns why it could not be sent; empty if it was.
std::string send_requested_signal(WorkerGroup& workers, int local_rank, const RequestedSignal& signal);

}  // namespace ddprun

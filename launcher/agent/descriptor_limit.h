#pragma once

#include "launcher/agent/agent.h"

namespace ddprun {

// The clients that an agent serves in a round.
struct ServedClients {
  int connections_of_workers = 0;  // workers that connect to a store in this process, on all nodes
  int sessions = 0;                // nodes with a session to a rendezvous server in this process, beyond its own
};

// The largest number of descriptors that the agent has open.
std::uint64_t needed_descriptors(const AgentSpec& spec, const ServedClients& clients);

// Fails at once where a later EMFILE would look like an unreachable server, which is retried. Throws Errc::io that
// names the need and the limit.
void check_descriptor_limit(const AgentSpec& spec, const ServedClients& clients);

}  // namespace ddprun

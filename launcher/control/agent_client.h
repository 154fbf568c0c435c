#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/common/environment.h"
#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/control/agent_record.h"

// The other side of control sockets: the agents of this user on this machine.
namespace ddprun {

struct LocalAgent {
  std::filesystem::path socket;
  AgentRecord record;
};

// Those that answer.
std::vector<LocalAgent> local_agents(const Environment& environment, Deadline deadline);

// Asks an agent to end its whole job. The connection ends when the agent does. Throws Errc::unreachable,
// Errc::connection_lost, Errc::timeout.
UniqueFd ask_agent_to_stop(const LocalAgent& agent, const std::string& who, Deadline deadline);

// A connection whose end is that of the agent; asks for nothing else.
UniqueFd follow_agent(const LocalAgent& agent);

// Until the other side of the connection has gone. False when the deadline passes before.
bool wait_for_end(int connection, Deadline deadline);

}  // namespace ddprun

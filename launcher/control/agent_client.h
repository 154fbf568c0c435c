#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/environment.h"
#include "common/unique_fd.h"
#include "launcher/control/agent_record.h"

// The client of control_socket.h: finds and asks the agents of this user on this machine.
namespace ddprun {

struct LocalAgent {
  std::filesystem::path socket;
  AgentRecord record;
};

// The agents that answer. A warning names an agent that does not answer in time, or gives an unknown answer. Throws
// Errc::usage for an invalid DDPRUN_RUNTIME_DIR.
std::vector<LocalAgent> local_agents(const Environment& environment, Deadline deadline);

// Asks an agent to end its whole job. requester appears in the agents' logs. The connection that is returned closes
// when the agent exits. Throws Errc::unreachable, Errc::connection_lost, Errc::timeout.
UniqueFd request_stop(const LocalAgent& agent, const std::string& requester, Deadline deadline);

// The agent's view of its job as JSON. Throws as request_stop() does.
std::string request_view(const LocalAgent& agent, Deadline deadline);

// Asks an agent to send the worker of a rank a signal. Returns why it was not sent; empty if it was. Throws as
// request_stop() does.
std::string request_signal(const LocalAgent& agent, int rank, int signal_number, const std::string& requester,
                           Deadline deadline);

// Asks an agent for the output of a rank. The connection that is returned, which blocks, has the agent's answer:
// attach/attach_protocol.h. Throws as request_stop() does.
UniqueFd request_attach(const LocalAgent& agent, int rank);

// A connection on which the agent sends its last view before it exits.
UniqueFd await_end(const LocalAgent& agent);

// Reads that view; returns nullopt if the deadline passes first. Throws Errc::connection_lost if the agent has ended
// without sending it, such as one that was killed.
std::optional<std::string> last_view(int connection, Deadline deadline);

// A connection that closes when the agent exits.
UniqueFd connect_to_agent(const LocalAgent& agent);

// Waits for the other side to close the connection. Returns false if the deadline passes first.
bool wait_for_close(int connection, Deadline deadline);

}  // namespace ddprun

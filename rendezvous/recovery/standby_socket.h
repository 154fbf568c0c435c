#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"

// The socket between an agent and a standby process: one of the workers' program that the agent has started before a
// worker is lost, and that becomes the lost one's replacement. The process reports that it is ready, and waits; the
// agent then sends it the environment and the standard descriptors that a new process would have been started with.
// The process reads the end of file once the agent has ended or has closed its end.
namespace ddprun {

// DDPRUN_STANDBY: the descriptor of its end of the socket, at a standby process only. Blanks after the number reserve
// room for the later environment (replace_environment()).
inline constexpr std::string_view standby_variable = "DDPRUN_STANDBY";

struct StandbySockets {
  UniqueFd agent, process;  // closed on exec
};
// Throws Errc::io.
StandbySockets make_standby_sockets();

// Called by the process once it is ready.
void report_ready(int socket);
// Called by the agent: returns whether the process has reported since the last call; does not wait.
bool take_ready_report(int socket);

struct Adoption {
  std::vector<std::string> environment;  // "NAME=value"
  std::array<UniqueFd, 3> standard;      // standard input, output and error
};
// Returns whether the message was sent as a whole; it does not wait. The descriptors are borrowed for the call. An
// environment of more than about 200 KB may be too large (net.core.wmem_default).
bool send_adoption(int socket, std::span<const std::string> environment, const std::array<int, 3>& standard);
// Waits for the message; returns none at the end of file. Throws Errc::io, Errc::protocol for what send_adoption() does
// not send.
std::optional<Adoption> receive_adoption(int socket);

}  // namespace ddprun

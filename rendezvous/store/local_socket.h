#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/unique_fd.h"

// The connections of workers to a store that the agent of their own host serves, over the agent's Unix socket: the
// kernel tells the agent which process has connected, so no token is needed and nothing is encrypted.
namespace ddprun::rendezvous {

// DDPRUN_STORE_SOCKET: "PORT:PATH", set for workers on the node of the agent that serves their store. PATH is the
// agent's Unix socket. PORT is MASTER_PORT, so that a worker of a job inside of this one, whose launcher sets
// MASTER_PORT but does not know this variable, does not use the store of the outer job.
inline constexpr std::string_view store_socket_variable = "DDPRUN_STORE_SOCKET";
std::string store_socket_value(std::string_view path, std::uint16_t master_port);
// Returns the path; empty if the value is of another port, or not of this form.
std::string store_socket_path(std::string_view value, std::uint16_t master_port);

// The first word on the connection. MASTER_PORT follows on the same line: an agent that serves another store, as that
// of a later round, closes the connection. What follows is the store's protocol (PROTOCOL.md).
inline constexpr std::string_view store_request = "store";

// Connects, and sends the request. Throws Errc::unreachable.
UniqueFd connect_local(const std::string& path, std::uint16_t master_port);

}  // namespace ddprun::rendezvous

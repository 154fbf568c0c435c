#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/trust/socket_owner.h"

namespace ddprun {

// The question of a store server to an agent: does a socket of the agent's host belong to the user of the job?
struct OwnerQuestion {
  std::uint64_t number = 0;
  SocketEnds ends;  // as the client sees them
};

// "NUMBER ADDRESS PORT ADDRESS PORT", the client's end first.
std::string encode(const OwnerQuestion& question);
// Throws Errc::protocol for any other text.
OwnerQuestion decode_owner_question(std::string_view text);

}  // namespace ddprun

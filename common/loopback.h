#pragma once

#include <optional>
#include <string>

namespace ddprun {

// The address at which processes of this host reach each other: 127.0.0.1, else ::1; nullopt where the loopback
// interface is down or has neither.
std::optional<std::string> find_loopback();

// Returns the address that find_loopback() finds; throws Errc::unreachable if there is none.
std::string loopback_address();

}  // namespace ddprun

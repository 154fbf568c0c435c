#pragma once

#include <cstdint>
#include <string>

namespace ddprun::comm {

// The numeric address by which this host reaches host:port: what others there may dial. No packet is sent. A loopback
// address only where host itself was given as one ("localhost", 127.x, ::1); where a host name merely resolves to
// loopback, as the local one does in Debian's /etc/hosts, the first other address of this host that is up. Throws
// Errc::unreachable naming the host.
std::string local_address_towards(const std::string& host, std::uint16_t port);

}  // namespace ddprun::comm

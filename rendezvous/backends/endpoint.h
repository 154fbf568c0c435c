#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ddprun/rendezvous/store/store_server.h"

// Which process serves the endpoint of a job.
namespace ddprun {

enum class Hosting {
  no,      // another host's, or told not to
  try_it,  // the endpoint is this host: serve it unless another process here does
  must,    // told to: a failure to bind is final
};

// is_host as given wins. Else this host serves what names it: localhost, a loopback address, its host name, or any name
// or address that belongs to one of its network interfaces. May block for a name lookup; a name that does not resolve
// is not ours.
Hosting decide_hosting(const std::string& host, const std::optional<bool>& is_host);

// Listens at the endpoint: on the address itself where it is a loopback address, else on all interfaces. Null when the
// port is taken and hosting is try_it; throws Errc::io when it is must.
std::unique_ptr<StoreServer> serve_endpoint(boost::asio::io_context& loop, const std::string& host, std::uint16_t port,
                                            Hosting hosting);

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/rendezvous/store/store_server.h"

// Which process serves the endpoint of a job.
namespace ddprun {

enum class Hosting {
  never,     // the endpoint is on another host, or is_host is false
  if_free,   // the endpoint is on this host: serve it unless another process does
  required,  // is_host is true: a failure to bind is an error
};

// is_host takes precedence. Otherwise this host serves an endpoint that is localhost, a loopback address, its own host
// name, or an address of one of its network interfaces. nullopt: a name that has to be looked up first.
std::optional<Hosting> decide_hosting(const std::string& host, const std::optional<bool>& is_host);
// For the numeric addresses that a name has.
Hosting decide_hosting(const std::vector<std::string>& addresses);

// Listens at the endpoint: on the address itself if it is a loopback address, otherwise on all interfaces. Returns null
// if the port is taken and hosting is if_free; throws Errc::io if hosting is required.
std::unique_ptr<StoreServer> serve_endpoint(boost::asio::io_context& loop, const std::string& host, std::uint16_t port,
                                            Hosting hosting);

}  // namespace ddprun

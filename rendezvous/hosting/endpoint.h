#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store_server.h"
#include "rendezvous/trust/admission.h"

// The choice of the process that serves the endpoint of a job.
namespace ddprun {

enum class Hosting {
  never,     // the endpoint is on another host, or is_host is false
  if_free,   // the endpoint is on this host: serve it unless another process does
  required,  // is_host is true: a failure to bind is an error
};

// is_host takes precedence. Otherwise this host serves an endpoint that is localhost, a loopback address, its own host
// name, or an address of one of its network interfaces. Returns nullopt for a name that has to be looked up first.
std::optional<Hosting> decide_hosting(const std::string& host, const std::optional<bool>& is_host);
// Decides for the numeric addresses that a name has.
Hosting decide_hosting(const std::vector<std::string>& addresses);

// The address on which a server listens whose clients dial `host`: `host` if this host has that address; empty (all
// interfaces) for a name, which may mean another address elsewhere, and for an address that another machine translates.
std::string listen_address(const std::string& host);

// Listens at the endpoint's listen_address(). Returns null if the port is taken and hosting is if_free; throws Errc::io
// if hosting is required. admission is the server's; if it is null, every client is served.
std::unique_ptr<StoreServer> serve_endpoint(boost::asio::io_context& loop, const std::string& host, std::uint16_t port,
                                            Hosting hosting, std::shared_ptr<const Admission> admission = nullptr);

}  // namespace ddprun

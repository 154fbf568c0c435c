#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/common/host_port.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace boost::asio {
class io_context;
}

// The rendezvous back ends by name, and how an agent opens one.
namespace ddprun {

struct BackendOptions {
  std::string backend = "c10d";    // "c10d", "static" or "etcd"
  bool standalone = false;         // c10d for one node: served by this process on a free port of the loopback interface
  std::string host = "127.0.0.1";  // of the endpoint, as typed
  std::uint16_t port = 29400;
  std::optional<bool> is_host;   // whether this agent serves the endpoint; unset: found out (endpoint.h)
  std::optional<int> node_rank;  // static: required. Node rank 0 serves the endpoint
  // c10d: how long to wait for a server that went away to come back, in a job that may start its workers anew
  std::chrono::milliseconds store_timeout{std::chrono::seconds(30)};
  std::vector<HostPort> more_endpoints;  // etcd: further members of the cluster
  std::string etcd_prefix = "/ddprun";   // etcd: of all keys
};

// One agent's rendezvous with all it needs: the handle, and the store server when this host serves the endpoint. Lives
// on the event loop handed in, which one thread runs and which must live longer. Destroying it ends all of it at once.
class RendezvousBackend {
 public:
  virtual ~RendezvousBackend() = default;

  virtual Rendezvous& rendezvous() = 0;
  // "10.0.0.1:29400", with the true port also when standalone.
  virtual std::string endpoint() const = 0;
  // This process serves the endpoint, as things stand.
  virtual bool is_host() const = 0;
  // Where an agent serves the workers' store. True (static): the workers meet at the endpoint's own store, which
  // RoundStarted names; ready() takes port 0. False (c10d): the agent of group rank 0 serves the workers a store of its
  // own and names its port in ready().
  virtual bool serves_workers() const = 0;
  // This agent leaves a job that has no verdict yet: says so to the rendezvous and, where this process serves the
  // endpoint, to all others, for whom the rendezvous goes with it.
  virtual void withdraw(const std::string& reason) { rendezvous().leave(reason); }
  // For the end of an agent, after JobEnded: calls done once, when no other node needs the endpoint of this process any
  // more (each has its verdict) or the deadline has passed; at once when it serves nothing. Newcomers are turned away
  // meanwhile.
  virtual void drain(Deadline deadline, std::function<void()> done) = 0;
};

// Throws Errc::usage for an unknown back end, Errc::unsupported for one of torchrun's that is not here (etcd-v2),
// Errc::io when is_host or node rank 0 asks to serve the endpoint and it cannot be bound. May block for a name lookup;
// the endpoint itself is dialled later, by join().
std::unique_ptr<RendezvousBackend> open_rendezvous(boost::asio::io_context& loop, const BackendOptions& options);

}  // namespace ddprun

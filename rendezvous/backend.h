#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/trust/admission.h"
#include "rendezvous/trust/credentials.h"

namespace boost::asio {
class io_context;
}

// The rendezvous back ends: their interface, and how an agent opens one by name.
namespace ddprun {

struct BackendOptions {
  std::string backend = "c10d";    // a row of rendezvous/CMakeLists.txt: "c10d", "static" or "etcd"
  bool standalone = false;         // c10d on one node: this process serves a free port of the loopback interface
  std::string host = "127.0.0.1";  // the endpoint's host, as typed
  std::uint16_t port = 29400;
  std::optional<bool> is_host;   // true: this agent serves the endpoint; unset: decide_hosting() (hosting/endpoint.h)
  std::optional<int> node_rank;  // static: required; node rank 0 serves the endpoint
  // The time for which c10d redials a lost server, in a job that may restart its workers.
  std::chrono::milliseconds store_timeout{std::chrono::seconds(30)};
  // c10d: of two nodes the one without the server goes on when it loses the server, which may go on too.
  bool survives_tie = false;
  std::vector<HostPort> more_endpoints;                      // etcd: further members of the cluster
  std::string etcd_prefix = "/ddprun";                       // etcd: prefix of all keys
  std::shared_ptr<const Credentials> credentials = nullptr;  // the job's credentials; null: this agent sends no token
  std::shared_ptr<const Admission> admission = nullptr;      // for this agent's server; null: admits everyone
};

// One agent's rendezvous: the Rendezvous handle, and the store server if this process serves the endpoint.
// Ownership: the caller owns it; the event loop passed in must outlive it. The destructor closes every connection at
//   once, as a crash would.
// Threads: all calls on the thread that runs the event loop. None blocks.
// Errors: reported through the Rendezvous handler as ContactLost.
class RendezvousBackend {
 public:
  virtual ~RendezvousBackend() = default;

  virtual Rendezvous& rendezvous() = 0;
  // "10.0.0.1:29400"; with the actual port if standalone.
  virtual std::string endpoint() const = 0;
  // Returns whether this process serves the endpoint at present.
  virtual bool is_host() const = 0;
  // Returns whether the workers use the endpoint's store (static), whose address RoundStarted carries; ready() then
  // takes port 0. Otherwise the agent of group rank 0 serves a separate store and passes its port to ready().
  virtual bool serves_workers() const = 0;
  // failed runs once, from the loop, when clients of a server in this process have waited for `bound` and none could be
  // accepted. Without a server nothing happens.
  virtual void on_server_failure(std::chrono::milliseconds /*bound*/, std::function<void(const Error&)> /*failed*/) {}
  // Leaves a job that has not ended. If this process serves the endpoint, it notifies all other nodes that the server
  // shuts down.
  virtual void withdraw(const std::string& reason) { rendezvous().leave(reason); }
  // Call after JobEnded. Calls done once: when every other node has received the job result, or after `results`; from
  // the next turn of the loop if this process serves no endpoint. Other jobs at an endpoint that this process serves
  // are waited for, however long they take, with a line in the log; withdraw() ends that. New jobs are refused
  // meanwhile.
  virtual void drain(std::chrono::milliseconds results, std::function<void()> done) = 0;
};

// Throws Errc::usage for an unknown back end, Errc::unsupported for etcd-v2, which torchrun has and ddprun has not, and
// Errc::io if this process has to serve the endpoint (is_host, or node rank 0) and cannot bind it. join() looks up and
// dials the endpoint.
std::unique_ptr<RendezvousBackend> open_rendezvous(boost::asio::io_context& loop, const BackendOptions& options);

// The function open_<name>() of each back end has this type.
using OpenBackend = std::unique_ptr<RendezvousBackend>(boost::asio::io_context& loop, const BackendOptions& options);

}  // namespace ddprun

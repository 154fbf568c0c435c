#pragma once

#include <chrono>
#include <optional>

#include "common/host_port.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/node_info.h"
#include "rendezvous/round.h"
#include "rendezvous/succession/electorate.h"

namespace ddprun {

// Which server a session client joins, in a job whose agents elect another one when theirs is lost.
// Ownership: outlives the client. Threads: the client's event loop. Errors: none thrown.
class ServerChoice {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~ServerChoice() = default;

  // The node begins to join. What it says of itself is added to `self`.
  virtual void begin(NodeInfo& self, const JobPolicy& policy) = 0;
  // The server to dial next; none: it is not known yet, and on_change() of the client follows.
  virtual std::optional<HostPort> target() = 0;
  // The server there is in this process.
  virtual bool is_own(const HostPort& target) const = 0;
  // No session began there.
  virtual void attempt_failed(const HostPort& target) = 0;
  // A session began with this server; without a name it is none that can have a successor. Returns whether the node may
  // follow it.
  virtual bool session_began(const ServerName& server, bool decides) = 0;
  // The session was lost. heard: when the last frame came.
  virtual void session_lost(Time heard) = 0;
  // The server of the session is silent, and may be lost; a frame of it has come after all. heard: as above.
  virtual void server_silent(Time heard) = 0;
  virtual void server_heard() = 0;
  // While no server is known after that: when the endpoint is tried, in case nobody has been elected. The client
  // redials until then at least.
  virtual std::optional<Time> patience_ends() const = 0;
  // The server says that it ends, or that another one has been elected.
  virtual void server_ends() = 0;
  virtual void moved(const HostPort& address) = 0;
  // The server has decided on these nodes, or confirmed such a decision.
  virtual void adopt(const Round& round) = 0;
  virtual void confirm(ElectorateVersion version) = 0;
  virtual ElectorateVersion newest() const = 0;
};

}  // namespace ddprun

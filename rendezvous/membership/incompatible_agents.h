#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/membership/incompatible_agent.h"
#include "rendezvous/store/session_hub.h"

namespace ddprun {

// The connections of a rendezvous server whose clients are agents of another rendezvous, and which of them it has
// refused. A static ddprun agent reads the reason from the store, at static_refusal_key, while it is connected.
// Ownership: the sender must outlive it. Threads: the server's event loop only.
class IncompatibleAgents {
 public:
  explicit IncompatibleAgents(SessionSender& sender) : sender_(sender) {}

  void add(SessionId connection, const IncompatibleAgent& agent) { agents_[connection] = agent; }
  // Throws Errc::usage to have the connection closed, except for a ddprun agent, which is told by the store.
  void refuse(const IncompatibleAgent& agent);
  // Refuses the agent, as above, if another one uses its run id with another kind of rendezvous, and one of the two is
  // ddprun's.
  void refuse_mixed_kinds(const IncompatibleAgent& agent);
  // A node wants to begin a c10d job. Returns why it may not: an agent uses its run id, which is refused, too.
  std::optional<std::string> refuse_for_job(const std::string& run_id);
  // The connection has closed. Returns whether it was that of an agent told by the store.
  bool closed(SessionId connection);
  // The number of connections of agents that have been told by the store.
  std::size_t refused() const { return refused_.size(); }
  void clear();

 private:
  void notify_static_agents(const std::string& run_id, const std::string& reason);

  SessionSender& sender_;
  std::map<SessionId, IncompatibleAgent> agents_;
  std::set<SessionId> refused_;  // those of agents_ that have been told by the store
};

}  // namespace ddprun

#include "rendezvous/membership/incompatible_agents.h"

#include <algorithm>

#include "common/error.h"

namespace ddprun {

void IncompatibleAgents::refuse(const IncompatibleAgent& agent) {
  if (!agent.ddprun) throw Error(Errc::usage, refusal_text(agent));
  notify_static_agents(agent.run_id, refusal_text(agent));
}

// torchrun's c10d and static agents do not share a run id either.
void IncompatibleAgents::refuse_mixed_kinds(const IncompatibleAgent& agent) {
  for (const auto& [other_id, other] : agents_)
    if (other.run_id == agent.run_id && other.kind != agent.kind && (other.ddprun || agent.ddprun)) {
      const IncompatibleAgent ours = other.ddprun ? other : agent;
      notify_static_agents(ours.run_id, conflict_text(other.ddprun ? agent : other));
      return refuse(agent);
    }
}

std::optional<std::string> IncompatibleAgents::refuse_for_job(const std::string& run_id) {
  const auto found =
      std::find_if(agents_.begin(), agents_.end(), [&](const auto& entry) { return entry.second.run_id == run_id; });
  if (found == agents_.end()) return std::nullopt;
  const IncompatibleAgent& agent = found->second;
  if (agent.ddprun) notify_static_agents(run_id, refusal_text(agent));
  return conflict_text(agent);
}

bool IncompatibleAgents::closed(SessionId connection) {
  const auto agent = agents_.extract(connection);
  if (agent.empty() || refused_.erase(connection) == 0) return false;
  const auto& run_id = agent.mapped().run_id;
  const bool last = std::none_of(refused_.begin(), refused_.end(),
                                 [&](SessionId other) { return agents_.at(other).run_id == run_id; });
  if (last) sender_.erase_key(static_refusal_wire_key(run_id));
  return true;
}

void IncompatibleAgents::clear() {
  agents_.clear();
  refused_.clear();
}

void IncompatibleAgents::notify_static_agents(const std::string& run_id, const std::string& reason) {
  for (const auto& [id, agent] : agents_)
    if (agent.ddprun && agent.run_id == run_id) refused_.insert(id);
  sender_.set_key(static_refusal_wire_key(run_id), reason);
}

}  // namespace ddprun

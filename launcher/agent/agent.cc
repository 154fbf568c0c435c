#include "launcher/agent/agent.h"

#include "launcher/agent/descriptor_limit.h"
#include "launcher/agent/node_agent.h"
#include "launcher/chaos/link_cut.h"

namespace ddprun {

int run_agent(const AgentSpec& spec, Guardian& guardian) {
  if (spec.faults && spec.faults->has(FaultKind::cut)) check_links_can_be_cut();
  if (!spec.health_check.command.empty()) run_health_check(spec.health_check, spec.group.environment, guardian);
  check_descriptor_limit(spec, {.connections_of_workers = spec.policy.agent_store ? spec.node.nproc : 0});
  NodeAgent agent(spec, guardian);
  return agent.run();
}

}  // namespace ddprun

#include "launcher/agent/own_record.h"

#include <unistd.h>
#include <utility>

namespace ddprun {

AgentRecord own_record(const AgentSpec& spec, const std::string& endpoint, const std::optional<Round>& round,
                       std::vector<WorkerReport> workers) {
  JobStatus own{.run_id = spec.policy.run_id,
                .program = spec.policy.program,
                .phase = round ? "running" : "forming",
                .max_restarts = spec.policy.max_restarts,
                .min_nodes = spec.policy.min_nodes,
                .max_nodes = spec.policy.max_nodes,
                .node_count = 1};
  JobStatus::Node node{.host = spec.node.host, .state = round ? "member" : "waiting", .nproc = spec.node.nproc};
  if (round) {
    const auto& self = round->members.at(static_cast<std::size_t>(round->self));
    own.generation = round->generation;
    own.restarts_used = round->restarts_used;
    own.world_size = round->world_size;
    own.store = round->store();
    node.address = self.address;
    node.group_rank = self.group_rank;
    node.first_rank = self.first_rank;
    for (auto& worker : workers) node.workers.push_back({.now = std::move(worker)});
  }
  own.nodes.push_back(std::move(node));
  return {.pid = ::getpid(),
          .endpoint = endpoint,
          .grace = std::chrono::duration_cast<std::chrono::seconds>(spec.grace),
          .own = std::move(own)};
}

}  // namespace ddprun

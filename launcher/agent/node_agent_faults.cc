// Faults that --chaos injects into a node.
#include <memory>

#include "launcher/agent/node_agent.h"
#include "launcher/agent/requested_signals.h"
#include "rendezvous/backend.h"

namespace ddprun {

void NodeAgent::on_leave_answered(const LeaveAnswered& answer) {
  if (!faults_) return;
  if (answer.refusal.empty())
    faults_->left();
  else
    faults_->stays(answer.refusal);
}

// They begin with the first workers.
void NodeAgent::inject_faults() {
  if (!spec_.faults) return;
  if (faults_) return faults_->joined();
  faults_ = std::make_unique<FaultInjector>(
      loop_, *spec_.faults, self().group_rank,
      FaultInjector::Node{.running = [this] { return fault_targets(); },
                          .send =
                              [this](int local_rank, int signal_number) {
                                return send_requested_signal(group_, local_rank, {signal_number, "--chaos"});
                              },
                          .leave = [this] { leave_by_fault(); },
                          .join = [this] { act(state_.on_join_request("--chaos")); }});
}

// The other nodes need the server that this process runs, which goes on only while this process does.
void NodeAgent::leave_by_fault() {
  const bool returns = spec_.faults->has(FaultKind::join);
  if (!returns && backend_->is_host()) return faults_->stays("it runs the rendezvous server");
  act(state_.on_leave_request("--chaos", returns ? Absence::for_a_time : Absence::for_good));
}

std::vector<FaultTarget> NodeAgent::fault_targets() const {
  std::vector<FaultTarget> targets;
  if (finish_) return targets;
  for (const auto& worker : group_.workers())
    if (worker.started && !worker.exit) targets.push_back({worker.local_rank, worker.pid});
  return targets;
}

}  // namespace ddprun

// Membership::status() and what only it needs.
#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "rendezvous/membership/membership.h"

namespace ddprun {
namespace {

JobStatus::Age age(StallAwareClock::Duration duration) {
  return std::max(JobStatus::Age(0), std::chrono::duration_cast<JobStatus::Age>(duration));
}

}  // namespace

MembershipMessages Membership::report(Time now, const std::string& id, std::int64_t generation,
                                      const NodeReport& report) {
  record_activity(now, id);
  if (const auto spare = nodes_.find(id); spare != nodes_.end() && !spare->second.member)
    spare->second.stands_by = report.stands_by.value_or(spare->second.stands_by) && spare->second.standby_asked;
  Node* node = current_member(id, generation, Phase::running);
  if (!node) return take_messages();
  node->replaced = report.replaced;
  if (report.usage) node->usage = report.usage;
  if (node->rank == 0) got_state_.insert(report.got_state.begin(), report.got_state.end());
  for (const auto& status : report.workers) {
    const auto index = static_cast<std::size_t>(status.local_rank);
    if (status.local_rank < 0 || status.local_rank >= node->info.nproc) continue;
    if (node->workers.size() <= index) node->workers.resize(index + 1);
    auto& worker = node->workers[index];
    const auto former = std::exchange(worker, {status, now, worker.replaced});
    if (status.pid == worker.replaced) worker.now.training.reset();  // the report of a process that has ended since
    if (former.now.pid != status.pid) continue;
    if (former.now.state == status.state) worker.since = former.since;
    if (!worker.now.training) worker.now.training = former.now.training;
  }
  if (report.wants_standby && std::exchange(node->wants_standby, *report.wants_standby) != *report.wants_standby)
    ask_spares();
  return take_messages();
}

JobStatus::Node MembershipState::status_of(Time now, const Node& node) const {
  const bool in_round = phase_ != Phase::forming && node.member;
  JobStatus::Node status{.host = node.info.host,
                         .address = node.info.address,
                         .state = in_round                   ? "member"
                                  : phase_ == Phase::forming ? "waiting"
                                                             : "spare",
                         .nproc = node.info.nproc,
                         .since = age(now - node.joined),
                         .heard = age(liveness_clock_.elapsed() - node.last_heard),
                         .usage = node.usage,
                         .warm = !in_round && node.stands_by};
  if (in_round && node.rank && *node.rank < static_cast<int>(round_.members.size())) {
    const RoundMember& member = round_.members[static_cast<std::size_t>(*node.rank)];
    status.address = member.address;
    status.group_rank = member.group_rank;
    status.first_rank = member.first_rank;
  }
  for (const auto& worker : node.workers)
    if (in_round && worker.now.pid > 0) status.workers.push_back({worker.now, age(now - worker.since)});
  return status;
}

JobStatus Membership::status(Time now) const {
  static constexpr std::array<const char*, 4> phases = {"forming", "starting", "running", "ended"};
  JobStatus status{.run_id = policy_.run_id,
                   .program = policy_.program,
                   .phase = phases.at(static_cast<std::size_t>(phase_)),
                   .waiting_for = phase_ == Phase::forming ? waiting_text() : "",
                   .generation = phase_ == Phase::forming ? next_generation_ : round_.generation,
                   .restarts_used = all_restarts(),
                   .max_restarts = policy_.max_restarts,
                   .min_nodes = policy_.min_nodes,
                   .max_nodes = policy_.max_nodes,
                   .world_size = phase_ == Phase::forming ? 0 : round_.world_size,
                   .store = phase_ == Phase::running ? round_.store() : "",
                   .node_count = static_cast<int>(nodes_.size()),
                   .since = age(now - phase_since_)};
  for (const auto& [id, node] : nodes_) status.nodes.push_back(status_of(now, node));
  // Members by rank, then the others in order of joining.
  std::sort(status.nodes.begin(), status.nodes.end(), [](const auto& a, const auto& b) {
    const auto key = [](const JobStatus::Node& n) {
      return std::make_tuple(n.group_rank < 0, n.group_rank, -n.since.count());
    };
    return key(a) < key(b);
  });
  if (status.nodes.size() > JobStatus::max_nodes_listed) status.nodes.resize(JobStatus::max_nodes_listed);
  return status;
}

}  // namespace ddprun

#include "rendezvous/membership/membership_text.h"

#include <fmt/format.h>

namespace ddprun {

std::string nnodes_text(const JobPolicy& policy) {
  if (policy.min_nodes == policy.max_nodes) return fmt::format("{}", policy.min_nodes);
  return fmt::format("{}:{}", policy.min_nodes, policy.max_nodes);
}

std::optional<std::string> policy_difference(const JobPolicy& job, const JobPolicy& node) {
  const auto differs = [](const char* name, const auto& theirs, const auto& ours) {
    return fmt::format("{} {} where the job has {}", name, theirs, ours);
  };
  if (!job.program.empty() && !node.program.empty() && job.program != node.program)
    return differs("the program", node.program, job.program);
  if (job.min_nodes != node.min_nodes || job.max_nodes != node.max_nodes)
    return differs("--nnodes", nnodes_text(node), nnodes_text(job));
  if (job.fixed_ranks != node.fixed_ranks)
    return differs("--rdzv_backend", node.fixed_ranks ? "static" : "c10d", job.fixed_ranks ? "static" : "c10d");
  if (job.agent_store != node.agent_store)
    return differs("--no_agent_store", node.agent_store ? "off" : "on", job.agent_store ? "off" : "on");
  if (job.mpi != node.mpi) return differs("--mpi", node.mpi ? "on" : "off", job.mpi ? "on" : "off");
  if (job.spares != node.spares) return differs("--spares", node.spares, job.spares);
  if (job.max_restarts != node.max_restarts) return differs("--max_restarts", node.max_restarts, job.max_restarts);
  if (job.last_call != node.last_call)
    return differs("last_call_timeout", duration_text(node.last_call), duration_text(job.last_call));
  if (job.join_timeout != node.join_timeout)
    return differs("join_timeout", duration_text(node.join_timeout), duration_text(job.join_timeout));
  if (job.keep_alive_interval != node.keep_alive_interval)
    return differs("keep_alive_interval", duration_text(node.keep_alive_interval),
                   duration_text(job.keep_alive_interval));
  if (job.keep_alive_max_attempt != node.keep_alive_max_attempt)
    return differs("keep_alive_max_attempt", node.keep_alive_max_attempt, job.keep_alive_max_attempt);
  return std::nullopt;
}

std::string count_text(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string ranks_text(const Round& round, std::optional<int> group_rank) {
  if (!group_rank || *group_rank >= static_cast<int>(round.members.size())) return "";
  const RoundMember& member = round.members[static_cast<std::size_t>(*group_rank)];
  if (member.nproc == 1) return fmt::format(" (rank {})", member.first_rank);
  return fmt::format(" (ranks {}-{})", member.first_rank, member.first_rank + member.nproc - 1);
}

std::string duration_text(std::chrono::milliseconds duration) {
  return fmt::format("{:g} s", static_cast<double>(duration.count()) / 1000.0);
}

}  // namespace ddprun

#include <charconv>

#include "common/error.h"
#include "launcher/cluster/discovery.h"
#include "launcher/cluster/node_list.h"

namespace ddprun {
namespace {

// The ports are below the well-known ports 29400 and 29500, and below the kernel's ephemeral ports. The number of ports
// is prime, so that consecutive jobs, and steps of one job, get different ones.
constexpr std::uint64_t first_step_port = 16384;
constexpr std::uint64_t step_ports = 12007;

// Slurm's own steps (the batch script, an interactive shell) have numbers from here on.
constexpr std::uint64_t first_special_step = 0xFFFF'FFF0;

std::optional<std::uint64_t> number(const Environment& environment, std::string_view name) {
  const auto text = environment.get(name);
  std::uint64_t value = 0;
  if (!text) return std::nullopt;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (text->empty() || status != std::errc{} || end != text->data() + text->size()) return std::nullopt;
  return value;
}

bool in_step(const Environment& environment) {
  const auto step = number(environment, "SLURM_STEP_ID");
  return step && *step < first_special_step && environment.get("SLURM_STEP_NODELIST");
}

// For a batch script, or a shell opened by salloc: it is one process, although the job may have several nodes.
ClusterInfo outside_of_steps(const Environment& environment, std::uint64_t job) {
  ClusterInfo info{.job = fmt::format("Slurm job {}", job), .id = fmt::format("slurm-{}", job)};
  const auto nodes = number(environment, "SLURM_JOB_NUM_NODES").value_or(1);
  if (nodes > 1)
    info.error = fmt::format(
        "{} has {} nodes, and this is ddprun on one of them: start it on each with 'srun --ntasks-per-node=1 ddprun "
        "...', or use this node alone with --standalone",
        info.job, nodes);
  return info;
}

ClusterInfo in_job_step(const Environment& environment, std::uint64_t job) {
  const auto step = *number(environment, "SLURM_STEP_ID");
  const auto hosts = expand_node_list(*environment.get("SLURM_STEP_NODELIST"));
  const auto node = number(environment, "SLURM_NODEID").value_or(0);
  ClusterInfo info{.job = fmt::format("Slurm job {}, step {}", job, step),
                   .nodes = static_cast<int>(hosts.size()),
                   .node_rank = static_cast<int>(node),
                   .host = hosts.front(),
                   .port = static_cast<std::uint16_t>(first_step_port + (job * 37 + step) % step_ports),
                   .id = fmt::format("slurm-{}.{}", job, step)};
  if (node >= hosts.size())
    throw make_error(Errc::usage, "{}: SLURM_NODEID = {}, but SLURM_STEP_NODELIST names {} nodes", info.job, node,
                     hosts.size());
  const auto tasks = expand_counts(environment.get("SLURM_STEP_TASKS_PER_NODE").value_or("1"));
  if (node < tasks.size() && tasks[node] > 1)
    info.error = fmt::format(
        "{} started {} ddprun on this node, and one is enough: it starts the workers itself; use 'srun "
        "--ntasks-per-node=1 ddprun --nproc_per_node={} ...'",
        info.job, tasks[node], tasks[node]);
  return info;
}

}  // namespace

std::optional<ClusterInfo> discover_slurm(const Environment& environment) {
  const auto job = number(environment, "SLURM_JOB_ID");
  if (!job) return std::nullopt;
  ClusterInfo info;
  try {
    info = in_step(environment) ? in_job_step(environment, *job) : outside_of_steps(environment, *job);
  } catch (const Error& e) {
    info.error = e.what();
  }
  if (const auto gpus = number(environment, "SLURM_GPUS_ON_NODE"); gpus && *gpus > 0)
    info.workers = static_cast<int>(*gpus);
  return info;
}

}  // namespace ddprun

#include "ddprun/launcher/agent/place.h"

#include "ddprun/common/log.h"
#include "ddprun/launcher/placement/affinity.h"

namespace ddprun {

void place_on_machine(AgentSpec& spec, const LaunchSettings& settings) {
  const auto& o = settings.options();
  auto& placement = spec.group.placement;
  placement = place_workers(
      {.workers = spec.node.nproc, .binding = parse_binding(o.bind, o.numa_binding), .for_preview = o.dry_run},
      spec.group.environment, current_affinity());
  if (placement.sets_threads)
    for (const auto& worker : placement.workers) spec.group.exported.omp_threads.push_back(worker.threads);
  if (o.dry_run) return;  // which shows it all
  for (const auto& notice : placement.notices) log::info("{}", notice);
  if (placement.sets_threads)
    log::debug("OMP_NUM_THREADS is unset: {} workers on {} cores get {} each", spec.node.nproc, placement.cores,
               placement.workers.back().threads);
}

}  // namespace ddprun

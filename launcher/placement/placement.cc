#include "launcher/placement/placement.h"

#include <utility>

#include "launcher/placement/topology.h"

namespace ddprun {
namespace {

// Cores without a topology, for a division that only counts them.
std::vector<Core> plain_cores(std::size_t count) {
  std::vector<Core> cores(count);
  for (std::size_t i = 0; i < count; ++i) cores[i].cpus = {static_cast<int>(i)};
  return cores;
}

}  // namespace

Placement place_workers(const PlacementRequest& request, const Environment& environment, const CpuList& allowed,
                        const std::filesystem::path& root) {
  const bool need_topology = request.for_preview || request.binding != Binding::none;
  Topology machine;
  machine.cores = need_topology ? read_cores(allowed, root) : plain_cores(count_cores(allowed, root));
  if (need_topology) machine.gpus = discover_gpus(environment, root);
  const auto quota = cpu_quota(root);
  auto division = divide(machine, request.workers, request.binding, quota);
  const bool throttled = quota && *quota < static_cast<double>(allowed.size());
  return {.binding = request.binding,
          .allowed = allowed,
          .cores = machine.cores.size(),
          .quota = quota,
          .gpus = machine.gpus.size(),
          .workers = std::move(division.workers),
          .sets_threads = !environment.get("OMP_NUM_THREADS") && (request.workers > 1 || throttled),
          .notices = std::move(division.notices)};
}

}  // namespace ddprun

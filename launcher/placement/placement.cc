#include "ddprun/launcher/placement/placement.h"

#include <utility>

#include "ddprun/launcher/placement/cpu_quota.h"

namespace ddprun {
namespace {

// For a division that only counts: cores that are told apart by nothing but a number.
std::vector<Core> plain_cores(std::size_t count) {
  std::vector<Core> cores(count);
  for (std::size_t i = 0; i < count; ++i) cores[i].cpus = {static_cast<int>(i)};
  return cores;
}

}  // namespace

Placement place_workers(const PlacementRequest& request, const Environment& environment, const CpuList& allowed,
                        const std::filesystem::path& root) {
  const bool whole_picture = request.everything || request.binding != Binding::none;
  Topology machine;
  machine.cores = whole_picture ? read_cores(allowed, root) : plain_cores(count_cores(allowed, root));
  if (whole_picture) machine.gpus = discover_gpus(environment, root);
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

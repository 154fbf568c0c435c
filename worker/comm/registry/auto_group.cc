#include "worker/comm/registry/auto_group.h"

#include <string>

#include "common/log.h"
#include "worker/comm/backends/nccl/nccl_group.h"
#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/registry/device_group.h"
#include "worker/comm/registry/host_group.h"
#include "worker/comm/registry/shared_devices.h"

namespace ddprun::comm {
namespace {

// Returns "rank 1 (on host b, where CUDA finds no GPU)" for the first that has no device; empty where all have one.
std::string first_deviceless(const RankLocations& locations) {
  for (std::size_t rank = 0; rank < locations.size(); ++rank) {
    const auto& place = locations[rank];
    if (!place.deviceless.empty()) return fmt::format("rank {} ({})", rank, place.deviceless);
    if (place.device.empty()) return fmt::format("rank {} (it was given no device)", rank);
  }
  return "";
}

std::unique_ptr<ProcessGroup> make_nccl(const GroupOptions& options) {
  return make_nccl_group(options, options.config.device.value(), "for device memory");
}

std::unique_ptr<ProcessGroup> make_staged(const GroupOptions& options) {
  return make_staged_group(make_second_host_group(host_options(options)), staged_options(options));
}

}  // namespace

std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options) {
  if (!options.config.device) return make_host_group(options);
  const auto place = place_of_device(*options.config.device);
  RankLocations locations{
      {.host = "", .network = "", .address = "", .device = place.device, .deviceless = place.deviceless}};
  auto host = make_host_group(host_options(options), place, &locations);
  if (auto deviceless = first_deviceless(locations); !deviceless.empty())
    return make_deviceless_group(std::move(host), *options.config.device, std::move(deviceless));
  const auto shared = describe_shared_devices(locations);
  if (shared.empty()) return make_device_group(std::move(host), options, make_nccl);
  if (options.rank == 0)
    log::info("device memory is staged through memory of the host: {}, which NCCL refuses", shared);
  return make_device_group(std::move(host), options, make_staged);
}

}  // namespace ddprun::comm

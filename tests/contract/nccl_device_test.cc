// Collectives on memory of CUDA devices, emulated or real: by NCCL with a device for each rank, and staged through
// memory of the host by ranks that share a device.
#include "tests/contract/device_groups.h"
#include "tests/contract/host_memory_group.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_cuda.h"

using namespace ddprun;

namespace {

[[maybe_unused]] const bool has_devices = test::use_emulated_cuda(2);

contract::Groups make_nccl(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(
      [](const GroupOptions& options) {
        return contract::make_host_memory_group(contract::make_nccl_rank(options), options.rank);
      },
      size, timeout);
}

contract::Groups make_staged(int size, std::chrono::milliseconds timeout) {
  return contract::make_groups(
      [](const GroupOptions& options) {
        return contract::make_host_memory_group(contract::make_staged_rank(options), 0);
      },
      size, timeout);
}

}  // namespace

DDPRUN_COLLECTIVE_CONTRACT("nccl on devices", make_nccl, contract::nccl_sizes())
DDPRUN_COLLECTIVE_CONTRACT("staged on a device", make_staged, {2})

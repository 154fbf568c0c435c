#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun {

struct Gpu {
  std::string name;         // as in CUDA_VISIBLE_DEVICES: "3", "GPU-1a2b..."
  std::string address;      // on the PCI bus, "0000:dc:00.0"; empty: unknown
  std::optional<int> node;  // the NUMA node that it is attached to; unset: unknown
};

// The NVIDIA GPUs that a worker sees, in CUDA's order (by PCI address, as with CUDA_DEVICE_ORDER=PCI_BUS_ID and for
// equal GPUs by default): the machine's GPUs, selected and ordered by CUDA_VISIBLE_DEVICES, where an entry that is not
// a device ends the list. They are found without CUDA: from the driver (/proc/driver/nvidia), else on the PCI bus, else
// from the device files. A GPU whose device file is missing (in a container) does not count. Reads only below root.
std::vector<Gpu> discover_gpus(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace ddprun

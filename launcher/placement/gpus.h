#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"

namespace ddprun {

struct Gpu {
  std::string name;         // as CUDA_VISIBLE_DEVICES has it: "3", "GPU-1a2b..."
  std::string address;      // on the PCI bus, "0000:dc:00.0"; empty: unknown
  std::optional<int> node;  // the NUMA node that it is attached to; unset: the system does not say
};

// The NVIDIA GPUs that a worker would see, in CUDA's order (by PCI address, as CUDA_DEVICE_ORDER=PCI_BUS_ID; equal GPUs
// are in that order anyway): those of the machine, cut down and ordered by CUDA_VISIBLE_DEVICES, of which an entry that
// is no device ends the list. Found without CUDA: by the driver (/proc/driver/nvidia), else on the PCI bus, else by the
// device files; one whose device file is missing (a container that was given others) does not count. Reads only below
// root.
std::vector<Gpu> discover_gpus(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace ddprun

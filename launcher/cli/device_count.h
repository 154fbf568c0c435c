#pragma once

#include <filesystem>

#include "common/environment.h"

namespace ddprun {

// The device counts for the words of --nproc_per_node, determined without the vendors' libraries.

// The number of processors that this process may use.
int usable_cpus();
// The number of NVIDIA's GPUs (placement/gpus.h).
int visible_gpus(const Environment& environment);
// The number of Intel's GPUs: the entries of ZE_AFFINITY_MASK, else Intel's render nodes in /sys below root.
int visible_xpus(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace ddprun

#pragma once

#include <filesystem>

#include "ddprun/common/environment.h"

namespace ddprun {

// What --nproc_per_node's words count. Found without the vendors' libraries.

// Processors that this process may run on.
int usable_cpus();
// NVIDIA's, as placement finds them (placement/gpus.h).
int visible_gpus(const Environment& environment);
// Intel's: the entries of ZE_AFFINITY_MASK, else the render nodes of that vendor in /sys below root.
int visible_xpus(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace ddprun

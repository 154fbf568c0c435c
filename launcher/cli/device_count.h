#pragma once

#include <filesystem>

#include "ddprun/common/environment.h"

namespace ddprun {

// What --nproc_per_node's words count. Found without the vendors' libraries, in /dev and /sys below root.

// Processors that this process may run on, at least 1.
int usable_cpus();
// NVIDIA's: the entries of CUDA_VISIBLE_DEVICES up to the first that is none, else the device nodes.
int visible_gpus(const Environment& environment, const std::filesystem::path& root = "/");
// Intel's: the entries of ZE_AFFINITY_MASK, else the render nodes of that vendor.
int visible_xpus(const Environment& environment, const std::filesystem::path& root = "/");

}  // namespace ddprun

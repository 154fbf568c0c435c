#pragma once

#include <filesystem>
#include <optional>

namespace ddprun {

// How many processors' worth of time the control groups of this process leave it (cpu.max of version 2, cfs_quota_us of
// version 1): the least among its group and all groups above. Nothing when there is no limit. Reads only below root.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace ddprun

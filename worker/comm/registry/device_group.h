#pragma once

#include <functional>
#include <memory>
#include <string>

#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

using MakeGroup = std::function<std::unique_ptr<ProcessGroup>(const GroupOptions&)>;

// Returns the options of a group beside another one's, for only memory of the host.
GroupOptions host_options(GroupOptions options);

// Returns the options for staging the memory of options.config.device.
StagedOptions staged_options(const GroupOptions& options);

// Makes a group for memory of the host, which the given one takes, and for memory of options.config.device, for which
// make_devices forms a group of its own. A failure of either ends both. Throws what make_devices throws, or why the
// host group failed meanwhile.
std::unique_ptr<ProcessGroup> make_device_group(std::unique_ptr<ProcessGroup> host, const GroupOptions& options,
                                                const MakeGroup& make_devices);
// Makes one where some rank has no device: calls on device memory are refused, naming it.
std::unique_ptr<ProcessGroup> make_deviceless_group(std::unique_ptr<ProcessGroup> host, int device, std::string why);

}  // namespace ddprun::comm

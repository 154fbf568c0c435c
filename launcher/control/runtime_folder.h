#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "ddprun/common/environment.h"

// Where the agents of a machine can be found by their owner: a socket each, named <pid>.sock, in a folder that nobody
// else can enter.
namespace ddprun {

// $DDPRUN_RUNTIME_DIR and no other where that is set; else, in order of preference: $XDG_RUNTIME_DIR/ddprun,
// /run/user/<uid>/ddprun, /tmp/ddprun-<uid>. Whoever looks for agents looks in all of them.
std::vector<std::filesystem::path> runtime_folders(const Environment& environment);

// The first of them that is there or can be made, and belongs to this user alone.
std::optional<std::filesystem::path> own_runtime_folder(const Environment& environment);

// The sockets in a folder, those of processes that are gone left out and removed. Nothing when others may write there.
std::vector<std::filesystem::path> agent_sockets(const std::filesystem::path& folder);

}  // namespace ddprun

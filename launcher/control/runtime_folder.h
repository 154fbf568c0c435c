#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/environment.h"

// The folder with the control sockets of this user's agents on this machine, one each, named <pid>-<namespace>.sock.
// Other users cannot enter it. Agents of several process id namespaces may share it, as in containers that share /tmp.
namespace ddprun {

// If $DDPRUN_RUNTIME_DIR is set, only that; otherwise, in order of preference, $XDG_RUNTIME_DIR/ddprun,
// /run/user/<uid>/ddprun, /tmp/ddprun-<uid>, and the folders of this user in /tmp whose names begin with that and a
// dot. Agents are looked for in all of them.
std::vector<std::filesystem::path> runtime_folders(const Environment& environment);

// The first of them that exists or can be created and that only this user can enter; if another user has made
// /tmp/ddprun-<uid>, a new one in /tmp with a dot and six random characters. Throws Errc::io with the reason for each
// folder that cannot be used.
std::filesystem::path own_runtime_folder(const Environment& environment);

// Throws Errc::usage if $DDPRUN_RUNTIME_DIR is not a folder that only this user can enter, so that agents do not use
// it. A missing one is valid.
void check_runtime_folder(const Environment& environment);

// The file name of this process's socket: with its process id and the inode of its process id namespace.
std::string own_socket_name();

// The sockets in a folder. Those of this namespace's processes that do not exist any more are removed. Sockets of other
// namespaces are all returned: a client that connects learns whether their process exists. Empty if other users may
// write to the folder.
std::vector<std::filesystem::path> agent_sockets(const std::filesystem::path& folder);

}  // namespace ddprun

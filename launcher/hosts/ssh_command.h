#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/environment.h"
#include "launcher/hosts/host_entries.h"

namespace ddprun {

// The command line that runs ddprun with one argument on a host. ssh is the value of --ssh, a program and its options;
// OpenSSH also gets options so that it never prompts and detects a dead connection; they follow the user's own, which
// take precedence. program is this executable; where the host has none at that path, ddprun is taken from PATH.
// Everything that a shell might interpret is sent through standard input instead, so the argument has no such
// character. Throws Errc::usage for quotes that are not closed.
std::vector<std::string> ssh_command(std::string_view ssh, const HostEntry& host, const std::string& program,
                                     const std::string& argument);

// The variables of this process that are passed to the hosts: those that configure ddprun, PyTorch and their libraries
// (the list is in docs/clusters.md), and those named by --env: "NAME" or "NAME=value", separated by commas. Throws
// Errc::usage for a name that is not set here.
std::vector<std::string> environment_for_hosts(const Environment& environment, std::string_view named);

}  // namespace ddprun

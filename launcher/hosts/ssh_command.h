#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/hosts/host_entries.h"

namespace ddprun {

// The command line that runs an agent on a host. ssh: as --ssh has it, a program and its options; OpenSSH itself gets
// options behind the user's own (which win) so that it asks for nothing and notices a connection that is dead. program:
// this ddprun, taken from PATH where the host has none at that place. The order, and with it all that a shell would
// have to be told not to touch, comes through standard input. Throws Errc::usage for quotes that are not closed.
std::vector<std::string> ssh_command(std::string_view ssh, const HostEntry& host, const std::string& program,
                                     const std::string& token);

// The variables of this process that go to the hosts: those that configure ddprun, PyTorch and what they compute and
// communicate with (the list is in docs/clusters.md), and those named: "NAME" or "NAME=value", separated by commas.
// Throws Errc::usage for a name that is not set here.
std::vector<std::string> environment_for_hosts(const Environment& environment, std::string_view named);

}  // namespace ddprun

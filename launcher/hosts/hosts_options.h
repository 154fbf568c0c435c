#pragma once

#include <string>

#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// The options of a job on a list of hosts.
struct HostsOptions {
  std::string hosts;
  std::string hostfile;
  std::string ssh = "ssh";
  std::string env;

  // Adds them to the settings, bound to this object.
  void add_to(LaunchSettings& settings);
  bool names_hosts() const { return !hosts.empty() || !hostfile.empty(); }
};

}  // namespace ddprun

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/cli/options.h"
#include "ddprun/launcher/hosts/fleet_state.h"
#include "ddprun/launcher/hosts/host_entries.h"
#include "ddprun/launcher/hosts/remote_order.h"
#include "ddprun/launcher/workers/guardian.h"

namespace ddprun {

// A job whose agents this process starts on hosts.
struct FleetSpec {
  std::vector<HostEntry> hosts;
  std::string ssh;
  std::string program;  // this ddprun
  std::string token;
  Environment environment;
  std::uint64_t descriptors = 0;  // how many an agent or ssh may have open; 0: as many as this process
  FleetPolicy policy;
  RemoteOrder order;      // what all hosts have in common
  std::string backend;    // for --rdzv_backend
  std::string nnodes;     // for --nnodes
  std::string rdzv_conf;  // as given
};

// True when the options name hosts.
bool names_hosts(const LaunchSettings& settings);

// From --hosts or --hostfile and the options that go with them. arguments: as typed. Throws Errc::usage, Errc::io for a
// hostfile that cannot be read.
FleetSpec make_fleet_spec(const LaunchSettings& settings, const Environment& environment,
                          const std::vector<std::string>& arguments, const std::string& program,
                          const std::string& version);

// The order for one host.
RemoteOrder order_for(const FleetSpec& spec, const SendOrder& action);

// Starts the agents, one a host, by ssh or, on this machine, without it; forwards their output, signals and end.
// Returns ddprun's exit code. On the main thread: what it started dies with that.
int run_fleet(const FleetSpec& spec, Guardian& guardian);

}  // namespace ddprun

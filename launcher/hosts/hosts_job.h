#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/environment.h"
#include "launcher/cli/options.h"
#include "launcher/hosts/host_entries.h"
#include "launcher/hosts/hosts_job_state.h"
#include "launcher/hosts/remote_protocol.h"
#include "launcher/workers/guardian.h"

namespace ddprun {

// The options of a job on a list of hosts.
struct HostsOptions {
  std::string hosts;
  std::string hostfile;
  std::string ssh = "ssh";
  std::string env;

  // Adds the options to the settings, bound to this object.
  void add_to(LaunchSettings& settings);
  bool names_hosts() const { return !hosts.empty() || !hostfile.empty(); }
};

// The hosts of --hosts or --hostfile. Throws Errc::usage, also for a hosts file that cannot be read.
std::vector<HostEntry> named_hosts(const HostsOptions& options);

// A job whose agents this process starts on a list of hosts. A value.
struct HostsJobSpec {
  std::vector<HostEntry> hosts;
  std::string ssh;
  std::string program;        // path of this ddprun
  std::string connection_id;  // random; marks the agents' messages
  Environment environment;
  std::uint64_t descriptors = 0;  // limit of open files for an agent or ssh; 0: that of this process
  HostsJobPolicy policy;
  LaunchRequest request;  // the part that is the same for all hosts
  std::string backend;    // value for --rdzv_backend
  std::string nnodes;     // value for --nnodes
  std::string rdzv_conf;  // as typed
};

// Makes the specification from --hosts or --hostfile and the other options. arguments are as typed. Throws Errc::usage,
// also for a hosts file that cannot be read.
HostsJobSpec make_hosts_job_spec(const LaunchSettings& settings, const HostsOptions& options,
                                 const Environment& environment, const std::vector<std::string>& arguments,
                                 const std::string& program, const std::string& version);

// The request for one host.
LaunchRequest request_for(const HostsJobSpec& spec, const SendRequest& action);

// Starts one agent per host, by ssh or, on this machine, directly; forwards their output and the signals of this
// process; returns ddprun's exit code. Call it on the main thread: the child processes die with that thread.
int run_hosts_job(const HostsJobSpec& spec, Guardian& guardian);

}  // namespace ddprun

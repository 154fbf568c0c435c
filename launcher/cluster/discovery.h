#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/environment.h"
#include "launcher/cli/options.h"

// Reads from the environment the values that a cluster's scheduler provides to its jobs: the number of nodes, the rank
// of this one, and an endpoint for the rendezvous.
namespace ddprun {

struct ClusterInfo {
  std::string job;  // for messages: "Slurm job 4242, step 0"
  int nodes = 1;
  int node_rank = 0;
  std::string host;  // host of the endpoint: the first node
  std::uint16_t port = 0;
  std::string id;              // the value for --rdzv_id
  std::optional<int> workers;  // GPUs that the job has on this node
  // If it is not empty, the variables do not describe a job that ddprun can run; one line with the reason and the
  // remedy. The other members are meaningless then.
  std::string error;
};

// The functions of slurm.cc, kubernetes.cc and cloud_tasks.cc (SkyPilot, dstack). Each returns nullopt if the
// environment is not that scheduler's. Pure.
std::optional<ClusterInfo> discover_slurm(const Environment& environment);
std::optional<ClusterInfo> discover_kubernetes(const Environment& environment);
std::optional<ClusterInfo> discover_cloud_task(const Environment& environment);

// Returns the result of the first one that finds something. Pure.
std::optional<ClusterInfo> discover_cluster(const Environment& environment);

// Assigns what was discovered to the options that the user did not set (Origin::cluster). Does nothing with
// --standalone, with --nnodes=1, and if both the number of nodes and the endpoint are given. Returns what was used.
// Throws Errc::usage for a ClusterInfo with an error, unless --nnodes is given: then the scheduler is ignored.
std::optional<ClusterInfo> apply_cluster(LaunchSettings& settings, const Environment& environment);

// One line for the log with the values that were taken from the cluster.
std::string describe(const ClusterInfo& info, const LaunchSettings& settings);

}  // namespace ddprun

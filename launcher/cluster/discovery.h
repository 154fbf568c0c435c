#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/cli/options.h"

// What a cluster's scheduler tells its jobs in the environment: how many nodes, which one this is, where they can meet.
namespace ddprun {

struct ClusterPlace {
  std::string job;  // for people: "Slurm job 4242, step 0"
  int nodes = 1;
  int node_rank = 0;
  std::string host;  // of the endpoint: the first node
  std::uint16_t port = 0;
  std::string id;              // for --rdzv_id
  std::optional<int> workers;  // GPUs that the job was given on this node
  // Not empty: a job cannot be made of what is there, and one line why and what would be right. The rest means nothing.
  std::string mistake;
};

// slurm.cc, kubernetes.cc: nothing when the environment is not of that scheduler. Pure.
std::optional<ClusterPlace> discover_slurm(const Environment& environment);
std::optional<ClusterPlace> discover_kubernetes(const Environment& environment);

// Whichever of them finds something. Pure.
std::optional<ClusterPlace> discover_cluster(const Environment& environment);

// Assigns what was discovered to the options that nobody has given (Origin::cluster). Left out with --standalone, with
// --nnodes=1, and where both the number of nodes and the endpoint are given. Returns the place where it was used.
// Throws Errc::usage for a mistake, unless --nnodes is given: then discovery steps back.
std::optional<ClusterPlace> apply_cluster(LaunchSettings& settings, const Environment& environment);

// One line for people: what was taken from the cluster.
std::string describe(const ClusterPlace& place, const LaunchSettings& settings);

}  // namespace ddprun

#pragma once

#include <algorithm>
#include <chrono>
#include <string>

namespace ddprun {

// The options that all nodes of a job have to share. The first node to join sets them; a node with others is refused
// with a message that names the option.
struct JobPolicy {
  std::string run_id = "none";
  std::string program;  // its name, as "train.cfg": distinguishes two jobs of one id; an empty one matches any
  int min_nodes = 1;
  int max_nodes = 1;
  bool fixed_ranks = false;  // static: min = max, and every node has a node_rank; set by the back end
  bool agent_store = true;   // an agent serves the workers' store; otherwise worker rank 0 does
  bool mpi = false;          // the workers of all nodes are one MPI job, which the agents serve
  int max_restarts = 0;      // job-wide; failures count, membership changes do not
  int spares = 0;            // nodes beyond max_nodes that stand by, each with a process for each of its local ranks
  // The time to wait for more nodes once min_nodes have joined.
  std::chrono::milliseconds last_call{std::chrono::seconds(30)};
  std::chrono::milliseconds join_timeout{std::chrono::seconds(600)};
  std::chrono::milliseconds keep_alive_interval{std::chrono::seconds(1)};
  int keep_alive_max_attempt = 5;  // missed heartbeats, by the receiver's clock, after which a node counts as lost

  // The time without a sign of the other side after which a node counts as lost to the server, and the server to it.
  std::chrono::milliseconds heartbeat_timeout() const { return keep_alive_interval * keep_alive_max_attempt; }
  // The time without a message of its server after which a node may support another one (succession/).
  std::chrono::milliseconds support_bound() const { return std::min(2 * keep_alive_interval, heartbeat_timeout()); }

  // Returns whether a job with too few nodes left waits for a replacement. A fixed number of nodes without restarts
  // or spares means that nothing may be started twice, so the loss of a node ends the job.
  bool may_be_replaced() const { return min_nodes < max_nodes || max_restarts > 0 || spares > 0; }
};

}  // namespace ddprun

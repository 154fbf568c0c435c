#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/store/store.h"

// torchrun's static rendezvous in the store: every agent publishes its node rank and worker count, node rank 0 assigns
// the ranks, and each agent reads its own. Keys and values are torchrun's, so that its agents can take part.
namespace ddprun {

// The value of torchelastic/role_info/<node rank>. The field "ddprun" is an extension, which torchrun ignores.
struct RoleInfo {
  std::string role = "default";
  int rank = 0;  // the node rank
  int local_world_size = 1;
  bool ddprun = false;
};
std::string to_json(const RoleInfo& info);
// Throws Errc::protocol with the text.
RoleInfo parse_role_info(std::string_view json);

// torchelastic/assigned_ranks/<node rank>: "[first rank, world size, first rank within the role, role's world size]"
std::vector<std::string> assign_static_ranks(const std::vector<RoleInfo>& nodes);

struct StaticExchange {
  RoleInfo self;
  int nnodes = 1;
  std::string run_id;
  std::string endpoint;           // for messages
  Store* torch_server = nullptr;  // the store without the job's prefix, if PyTorch's server is behind it
};
struct StaticGroup {
  std::vector<RoleInfo> nodes;  // by node rank
  int first_rank = 0;           // the first rank of self
  int world_size = 0;
  bool all_ddprun = false;
};

// Blocks until all nodes have joined and ranks are assigned. store has the job's prefix. waiting is called when the set
// of missing nodes changes. Throws Errc::timeout naming the missing node ranks, Errc::usage if other agents use the run
// id with another back end, and Errc::aborted after a stop request: within half a second, or at once if the store
// itself takes the stop token.
StaticGroup exchange_static_ranks(Store& store, const StaticExchange& exchange, Deadline deadline,
                                  const std::stop_token& stop, const std::function<void(const std::string&)>& waiting);

// torchrun's exit barrier: returns when all agents have entered it, or at the deadline with a warning in the log.
void wait_at_exit_barrier(Store& store, int nnodes, Deadline deadline, const std::stop_token& stop);

}  // namespace ddprun

#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/store/store.h"

// torchrun's static rendezvous as seen in the store: every agent writes down what it brings, node rank 0 assigns the
// ranks, each agent reads its own. Keys and values are torchrun's, so its agents may take part.
namespace ddprun {

// torchelastic/role_info/<node rank>. torchrun ignores keys that it does not know; "ddprun" is ours.
struct RoleInfo {
  std::string role = "default";
  int rank = 0;  // node rank
  int local_world_size = 1;
  bool ddprun = false;
};
std::string to_json(const RoleInfo& info);
// Throws Errc::protocol naming what is wrong.
RoleInfo parse_role_info(std::string_view json);

// torchelastic/assigned_ranks/<node rank>: "[first rank, world size, first rank within the role, role's world size]"
std::vector<std::string> assign_static_ranks(const std::vector<RoleInfo>& nodes);

struct StaticExchange {
  RoleInfo self;
  int nnodes = 1;
  std::string endpoint;  // for messages
};
struct StaticGroup {
  std::vector<RoleInfo> nodes;  // by node rank
  int first_rank = 0;           // of self
  int world_size = 0;
  bool all_ddprun = false;
};

// Blocks until all nodes have come and ranks are assigned. store has the job's prefix. waiting hears, when it changes,
// who is missing. Throws Errc::timeout naming the missing node ranks, Errc::aborted after a request to stop: within
// half a second, at once where the store itself heeds stop.
StaticGroup exchange_static_ranks(Store& store, const StaticExchange& exchange, Deadline deadline,
                                  const std::stop_token& stop, const std::function<void(const std::string&)>& waiting);

// torchrun's exit barrier: returns when all agents have come here, or with a word in the log when they have not in
// time.
void wait_at_exit_barrier(Store& store, int nnodes, Deadline deadline, const std::stop_token& stop);

}  // namespace ddprun

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/host_port.h"
#include "ddprun/launcher/cli/options.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// How this node's agent meets the others: what the options, the environment and the defaults amount to together.
struct RendezvousChoice {
  enum class Backend { c10d, static_, etcd };
  Backend backend = Backend::c10d;
  bool standalone = false;               // one node, the server in this process on a free port
  std::string host;                      // of the endpoint; unused when standalone
  std::uint16_t port = 0;                // 0: a free one (standalone)
  std::vector<HostPort> more_endpoints;  // etcd: further members of the cluster
  std::string etcd_prefix = "/ddprun";   // etcd: of all keys
  std::optional<bool> is_host;           // whether this agent serves the endpoint; unset: find out
  std::optional<int> node_rank;
  std::chrono::milliseconds store_timeout{std::chrono::seconds(30)};  // for a lost server of the endpoint to come back
  JobPolicy policy;
  std::map<std::string, int> seconds;  // settings of --rdzv_conf that were given, by torchrun's names
  std::string notice;                  // one line for people, empty when there is nothing to say
};

// As --rdzv_backend has it.
std::string name_of(RendezvousChoice::Backend backend);

// Pure. Throws Errc::usage naming the option, its value and what would be right.
RendezvousChoice choose_rendezvous(const LaunchSettings& settings, const Environment& environment);

}  // namespace ddprun

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/host_port.h"
#include "launcher/cli/options.h"
#include "rendezvous/backend.h"
#include "rendezvous/job_policy.h"

namespace ddprun {

// The rendezvous of this node's agent, as determined by options, environment and defaults. A value.
struct RendezvousChoice {
  enum class Backend { c10d, static_, etcd };
  Backend backend = Backend::c10d;
  bool standalone = false;               // one node, with the server in this process on a free port
  std::string host;                      // the endpoint's host; unused if standalone
  std::uint16_t port = 0;                // 0: a free one (standalone)
  std::vector<HostPort> more_endpoints;  // etcd: further members of the cluster
  std::string etcd_prefix = "/ddprun";   // etcd: the prefix of all keys
  std::optional<bool> is_host;           // this agent runs the server; unset: the endpoint's address decides
  std::optional<int> node_rank;
  std::chrono::milliseconds store_timeout{std::chrono::seconds(30)};  // to wait for a lost rendezvous server
  bool survives_tie = false;  // tie_break=survive: of two nodes the one without the server goes on
  JobPolicy policy;
  std::map<std::string, int> seconds;  // the times given in --rdzv_conf, by torchrun's names
  std::string token_file;              // from --rdzv_conf; empty: none
  bool authenticate = true;            // auth=off: false
  bool encrypt = true;                 // tls=off: false
  bool clients_of_job = true;          // plain_clients=user: false
  std::string notice;                  // a line for the log, or empty
};

// The value of --rdzv_backend.
std::string name_of(RendezvousChoice::Backend backend);

// Throws Errc::usage naming the option, its value and what would be right. Pure.
RendezvousChoice choose_rendezvous(const LaunchSettings& settings, const Environment& environment);

// The options for open_rendezvous().
BackendOptions backend_options(const RendezvousChoice& choice);

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/host_port.h"
#include "rendezvous/succession/electorate.h"

namespace ddprun {

struct RoundMember {
  std::string node_id;
  std::string host;
  std::string address;     // never empty here
  std::uint16_t port = 0;  // NodeInfo::port
  int group_rank = 0;      // rank of the node among nodes
  int nproc = 1;
  int first_rank = 0;  // global rank of its local rank 0
  // The names of its workers in their process group (recovery/recovery_keys.h), by local rank; none before the start.
  std::vector<std::string> workers = {};
};

// The difference between the commands of a round's nodes (membership/node_commands.h).
struct CommandDifference {
  std::vector<std::string> first;   // the command of group rank 0
  int other = 0;                    // the first group rank with another command
  std::vector<std::string> others;  // that command
  int count = 0;                    // number of nodes whose command is not that of group rank 0
};

// One agreed membership of a job: its nodes and their ranks.
struct Round {
  std::int64_t generation = 0;       // the number of the round in its job, from 0
  int restarts_used = 0;             // job-wide
  int self = 0;                      // index of this node in members
  std::vector<RoundMember> members;  // by group_rank
  int world_size = 0;
  std::optional<CommandDifference> commands;  // set if not all nodes run the same command
  std::string master_addr;                    // host of the workers' store; set when the round starts
  std::uint16_t master_port = 0;
  // The generation of its workers' process group: one more for each change of that group while the round runs.
  std::uint64_t group_generation = 0;
  // The version of its nodes as an electorate, and of the last one that was confirmed; none where no election is held.
  ElectorateVersion electorate, confirmed;

  std::string store() const { return format_host_port(master_addr, master_port); }
};

}  // namespace ddprun

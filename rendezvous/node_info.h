#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// The round that a rejoining node was last in. A restarted server continues from the highest generation reported, or
// with that round itself, if its workers still run on all of its nodes.
struct FormerRound {
  std::int64_t generation = 0;
  int group_rank = 0;
  int restarts_used = 0;
  int nodes = 0;            // the number of its nodes if this node's workers of it still run; otherwise 0
  std::string first;        // if so, the id of its group rank 0, which tells rounds of equal generations apart
  std::string master_addr;  // and the address of its workers' store
  std::uint16_t master_port = 0;
  std::uint64_t group_generation = 0;  // and Round::group_generation
  std::vector<std::string> workers;    // RoundMember::workers of this node
  std::uint16_t store_port = 0;        // what it has passed to Rendezvous::ready()
  bool done = false;                   // its workers have ended by themselves, which no server may have been told
};

// The information that a node sends when it joins.
struct NodeInfo {
  std::string id;                    // unique to one agent; a node that rejoins with it gets its old rank back
  std::string host;                  // for messages
  std::string address;               // that other nodes dial (--local_addr); empty: its session's peer address
  int nproc = 1;                     // number of workers
  std::optional<int> node_rank;      // static: its rank; otherwise a preference
  std::vector<std::string> command;  // the workers' program and arguments as typed, for messages
  std::optional<FormerRound> former;
  std::uint16_t port = 0;  // at which its agent listens for elections; 0: it takes part in none
  bool serves = false;     // the server that it joins is in its process
};

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::testing {

struct SuccessionOptions {
  std::uint64_t seed = 1;
  int nodes = 3;
  // One of two nodes survives the other. No node is frozen or cut off, so that one that is not heard has ended.
  bool ties = false;
  bool trace = false;
};

// The outcome of a schedule.
struct SuccessionOutcome {
  int elections = 0;                // servers that have decided after the first one
  int deposed = 0;                  // servers that found that they may not decide any more
  int given_up = 0;                 // nodes that gave up a silent server with which they had a session
  int decisions = 0;                // sets of nodes
  int confirmed = 0;                // of them
  int outside = 0;                  // sets of nodes without the server
  int fresh = 0;                    // servers that were started at the endpoint, without an election
  bool ended = false;               // too few nodes were left for an election
  std::vector<std::string> broken;  // promises that were broken, a line each
};

// The nodes of one job under virtual time: the real Succession of each, and the real ServerLease of those that serve.
// Nodes crash, freeze and return, are cut off, lose their connections, and come as new ones; the network delays,
// reorders and loses messages; servers decide on sets of nodes as nodes are lost, leave and join, their own among them.
// Where too few are left for an election one starts a server at the endpoint, which knows nothing. Promises: whenever a
// server decides, no other one may; a term has one server; the terms of decisions never fall; each server knows the
// sets that were confirmed before it decides; an elected one gathers nodes for a bounded time; and once the faults have
// ended, all living nodes follow one server, if a majority of the nodes lives.
SuccessionOutcome run_succession_schedule(const SuccessionOptions& options);

}  // namespace ddprun::testing

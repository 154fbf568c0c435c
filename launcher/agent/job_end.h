#pragma once

#include "launcher/agent/agent.h"
#include "launcher/agent/agent_state.h"
#include "launcher/output/console.h"
#include "launcher/output/log_folder.h"

namespace ddprun {

// The last steps of an agent, once no worker is left: it prints the failures, reports the root cause to a scheduler,
// and keeps or removes its log folder. Borrows all members.
struct JobEnd {
  const AgentSpec& spec;
  Guardian& guardian;
  Console& console;
  const LogFolder& logs;
  std::chrono::milliseconds output_timeout;  // the longest delay of the end by a terminal that accepts nothing
  bool failed_here = false;                  // the root cause is on this node

  // Returns ddprun's exit code.
  int conclude(const Finish& finish) const;
};

// Returns whether there are log files that the user asked for.
bool keeps_logs(const AgentSpec& spec, const LogFolder& logs);

}  // namespace ddprun

#pragma once

#include <chrono>
#include <string>

#include "common/environment.h"
#include "launcher/workers/guardian.h"

namespace ddprun {

// A command that decides whether this node may join the job.
struct HealthCheck {
  std::string command;  // for sh -c
  std::string host;     // this node's host, for messages
  std::chrono::milliseconds timeout{0};
};

// Runs the command and waits for its end; then no process of its group is left. If a signal ends this process, the
// guardian ends that group. Makes this process the parent of its orphans (become_subreaper). Call on the main thread,
// while it has no other child but the guardian.
//
// Throws Errc::io, naming host, command, cause and the end of its output, when it exits with another code than 0, a
// signal ends it, it takes longer than the timeout, or cannot be started.
void run_health_check(const HealthCheck& check, const Environment& environment, Guardian& guardian);

}  // namespace ddprun

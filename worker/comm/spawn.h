#pragma once

#include <chrono>
#include <functional>

#include "worker/comm/launch_env.h"

namespace ddprun {

struct SpawnOptions {
  std::chrono::milliseconds grace{5'000};  // from SIGTERM to SIGKILL, for the other ranks after one has failed
};

// Runs function in n processes, forked from this one, as the ranks of a job on this host: ddprun within one program.
// This process serves their store and waits for them; each rank gets its environment and joins with
//
//   ddprun::spawn(2, [](const ddprun::WorkerEnv& env) {
//     const auto world = ddprun::init_process_group({.env = env});
//     ...
//   });
//
// A rank's process ends when function returns. Its memory is its own: return results through files or the store. When a
// rank fails, the others get SIGTERM, then SIGKILL. Ranks die with the calling thread's process.
//
// Throws Errc::usage if n < 1, or if this process has more than one thread: a fork would lose the other threads, and
// leave their locks held. When a rank fails, throws an Error that names the rank, with the code and message of its
// exception, or the signal that ended it. A rank's own failure takes precedence over the loss of a peer.
void spawn(int n, const std::function<void(const WorkerEnv&)>& function, const SpawnOptions& options = {});

}  // namespace ddprun

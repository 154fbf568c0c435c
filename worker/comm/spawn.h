#pragma once

#include <chrono>
#include <functional>

#include "ddprun/worker/comm/worker_env.h"

namespace ddprun {

struct SpawnOptions {
  std::chrono::milliseconds grace{5'000};  // from SIGTERM to SIGKILL for the others once a rank has failed
};

// Runs function in n processes, forked from this one, as the ranks of a job on this host: what ddprun does for
// programs, from inside one. This process serves their store and waits; each rank gets its place and joins with
//
//   ddprun::spawn(2, [](const ddprun::WorkerEnv& env) {
//     const auto world = ddprun::init_process_group({.env = env});
//     ...
//   });
//
// The rank's process ends when function returns; memory is the rank's own, so results go through files or the store.
// The first rank to fail ends the others: SIGTERM, then SIGKILL. Ranks die with the calling thread's process.
//
// Throws Errc::usage when n < 1, or when this process has more than one thread: forking would lose the others, and the
// locks they hold. When a rank fails, throws an Error with the code and message of its exception, or the signal that
// ended it, naming the rank; a rank's own failure comes before those that merely lost a peer.
void spawn(int n, const std::function<void(const WorkerEnv&)>& function, const SpawnOptions& options = {});

}  // namespace ddprun

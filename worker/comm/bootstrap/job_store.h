#pragma once

#include <chrono>
#include <memory>

#include "ddprun/rendezvous/store/tcp_store.h"
#include "ddprun/worker/comm/comm_config.h"
#include "ddprun/worker/comm/launch_env.h"

// How a process reaches the store of its job.
namespace ddprun::comm {

// How long the store may be silent: as long as a rank may.
std::chrono::milliseconds store_grace(const CommConfig& config);
// A client with a connection of its own. Throws what TcpStore throws, within the timeout.
std::shared_ptr<TcpStore> connect_job_store(const WorkerEnv& env, const CommConfig& config);
// The same with the address at which other ranks reach this one, where it has none.
CommConfig with_local_address(CommConfig config, const WorkerEnv& env);

}  // namespace ddprun::comm

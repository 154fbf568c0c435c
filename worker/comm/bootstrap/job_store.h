#pragma once

#include <chrono>
#include <memory>
#include <stop_token>

#include "common/deadline.h"
#include "rendezvous/store/tcp_store.h"
#include "rendezvous/trust/credentials.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/launch_env.h"

// The connection of a process to the store of its job.
namespace ddprun::comm {

// The time that the store may be silent: that of the job's groups (store_timeout_of()).
std::chrono::milliseconds store_grace(const WorkerEnv& env, const CommConfig& config);
// The job's token, for a store that an agent on another host serves; null elsewhere: on this host the kernel says whose
// this process is, and a worker whose descriptor a program in between has closed is known to this host's agent.
std::shared_ptr<const Credentials> job_credentials(const WorkerEnv& env);
// Makes a client with a connection of its own. Throws what TcpStore throws, by the deadline. stop: as in
// TcpStoreOptions.
std::shared_ptr<TcpStore> connect_job_store(const WorkerEnv& env, const CommConfig& config,
                                            std::shared_ptr<const Credentials> credentials, Deadline deadline,
                                            std::stop_token stop = {});
// Returns config with the address at which other ranks reach this one, where it has none.
CommConfig with_local_address(CommConfig config, const WorkerEnv& env);

}  // namespace ddprun::comm

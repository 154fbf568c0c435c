#include "worker/comm/bootstrap/job_store.h"

#include <utility>

#include "rendezvous/trust/token_descriptor.h"
#include "worker/comm/bootstrap/local_address.h"
#include "worker/comm/group_options.h"

namespace ddprun::comm {

std::chrono::milliseconds store_grace(const WorkerEnv& env, const CommConfig& config) {
  GroupOptions group{.config = config};
  if (!env.use_agent_store) group.store_host = 0;
  group.beside_store = is_this_host(env.master_addr, env.master_port);
  return store_timeout_of(group);
}

std::shared_ptr<const Credentials> job_credentials(const WorkerEnv& env) {
  if (env.token_descriptor < 0 || !env.use_agent_store || is_this_host(env.master_addr, env.master_port))
    return nullptr;
  return read_token_descriptor(env.token_descriptor, env.run_id);
}

std::shared_ptr<TcpStore> connect_job_store(const WorkerEnv& env, const CommConfig& config,
                                            std::shared_ptr<const Credentials> credentials, Deadline deadline,
                                            std::stop_token stop) {
  return std::make_shared<TcpStore>(TcpStoreOptions{.host = env.master_addr,
                                                    .port = env.master_port,
                                                    .grace = store_grace(env, config),
                                                    .stop = std::move(stop),
                                                    .credentials = std::move(credentials),
                                                    .local_socket = env.store_socket},
                                    deadline);
}

CommConfig with_local_address(CommConfig config, const WorkerEnv& env) {
  if (config.local_address.empty()) config.local_address = env.network_interface;
  if (config.local_address.empty()) config.local_address = local_address_towards(env.master_addr, env.master_port);
  return config;
}

}  // namespace ddprun::comm

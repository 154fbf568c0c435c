#include "worker/comm/elastic_world.h"

#include "common/error.h"
#include "worker/comm/bootstrap/job_store.h"
#include "worker/comm/bootstrap/local_address.h"

namespace ddprun {
namespace {

const WorkerEnv& require_agent_store(const WorkerEnv& env) {
  if (!env.use_agent_store)
    throw Error(Errc::usage, "rank 0 serves the store of this job, so the group cannot be formed again without it");
  return env;
}

}  // namespace

ElasticWorld::ElasticWorld(const InitOptions& options, const std::string& prefix, const std::string& self)
    : env_(require_agent_store(options.env)),
      credentials_(comm::job_credentials(env_)),
      config_(comm::with_local_address(options.config, options.env)),
      group_(std::make_unique<ElasticGroup>(
          options.backend,
          GroupOptions{.connect_store = [this] { return connect(); },
                       .prefix = prefix,
                       .config = config_,
                       .beside_store = comm::is_this_host(options.env.master_addr, options.env.master_port)},
          self)) {}

std::shared_ptr<Store> ElasticWorld::connect() const {
  return comm::connect_job_store(env_, config_, credentials_);
}

}  // namespace ddprun

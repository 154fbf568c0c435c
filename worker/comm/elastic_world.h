#pragma once

#include <memory>
#include <string>

#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/elastic_group.h"
#include "ddprun/worker/comm/init.h"

namespace ddprun {

class Credentials;

// This process's membership of a job whose process group is formed again while it runs, and which a launcher serves the
// store of: init_process_group() for an ElasticGroup.
//
// Ownership: owns the group. Threads: as ElasticGroup; connect() may be called from any.
// Errors: the constructor throws Errc::usage for options that no group can have, and for a job whose rank 0 serves the
// store, which then ends with that process.
class ElasticWorld {
 public:
  // prefix: of the keys of all generations. self: this process's name among the members.
  ElasticWorld(const InitOptions& options, const std::string& prefix, const std::string& self);

  ElasticGroup& group() { return *group_; }
  // A new client of the job's store, with a connection of its own. Throws as TcpStore.
  std::shared_ptr<Store> connect() const;

 private:
  const WorkerEnv env_;
  const std::shared_ptr<const Credentials> credentials_;  // null: sends no token
  const CommConfig config_;
  const std::unique_ptr<ElasticGroup> group_;
};

}  // namespace ddprun

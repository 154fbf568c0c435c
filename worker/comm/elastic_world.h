#pragma once

#include <memory>
#include <string>

#include "rendezvous/store/store.h"
#include "worker/comm/elastic_group.h"
#include "worker/comm/init.h"

namespace ddprun {

class Credentials;

// This process's membership of a job whose process group is formed again while it runs, and whose store a launcher
// serves: init_process_group() for an ElasticGroup.
//
// Ownership: owns the group. Threads: those of ElasticGroup; any thread may call connect().
// Errors: the constructor throws Errc::usage for options that no group can have, and for a job whose rank 0 serves the
// store, which then ends with that process.
class ElasticWorld {
 public:
  // prefix: the beginning of the keys of all generations. self: this process's name among the members.
  ElasticWorld(const InitOptions& options, const std::string& prefix, const std::string& self);

  ElasticGroup& group() { return *group_; }
  // Makes a new client of the job's store, with a connection of its own. Throws what TcpStore throws.
  std::shared_ptr<Store> connect() const;

 private:
  const WorkerEnv env_;
  const std::shared_ptr<const Credentials> credentials_;  // null if no token is sent
  const CommConfig config_;
  const std::unique_ptr<ElasticGroup> group_;
};

}  // namespace ddprun

#pragma once

#include <optional>
#include <string>

#include "common/environment.h"
#include "common/unique_fd.h"

namespace ddprun::trainer {

// This process as one that its launcher has started before a worker is lost (standby_socket.h). Where memory is
// exhausted, the kernel ends it before the job's workers.
//
// Ownership: owns its end of the launcher's socket. Threads: wait() changes the environment, so no other thread may
// read that meanwhile. Errors: as its functions say.
class Standby {
 public:
  // Returns none unless the environment has DDPRUN_STANDBY. Throws Errc::usage if that names no open descriptor.
  static std::optional<Standby> from(const Environment& environment);

  // The number of the job's ranks.
  int ranks() const { return ranks_; }
  // Reports that this process is ready, and waits. Returns true once this process has the environment and the standard
  // descriptors of the worker that it becomes, and false if it is not needed any more. While it waits its name (comm)
  // is ddprun-standby. Throws Errc::io, Errc::protocol.
  bool wait();

 private:
  Standby(UniqueFd socket, int ranks);

  UniqueFd socket_;
  int ranks_;
  std::string oom_score_;  // oom_score_adj before this object; empty if it is not known
};

}  // namespace ddprun::trainer

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/round.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// Serves PMI-1 (pmi_state.h) to the workers of one round on this node: a socket for each, which it inherits. Errors are
// logged, and the sockets of the ranks concerned are closed: then MPI ends these processes.
//
// Ownership: owns the sockets; borrows the loop. Threads: single-threaded on the loop. Errors: the constructor throws
// Errc::io.
class PmiServer {
 public:
  struct Handlers {
    // Called when a worker may have begun to wait for others, of which one may have ended.
    std::function<void()> waiting;
    // A worker has called MPI_Abort, and waits for its end. Called from within complaint(), too.
    std::function<void(int local_rank, int exit_code)> aborted;
  };
  PmiServer(boost::asio::io_context& loop, const Round& round, Handlers handlers);
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  // Returns the descriptor for a worker's process, until that has been started.
  int worker_end(int local_rank) const;
  void started(int local_rank);
  // Returns the fault of a worker that has exited with code 0; empty if there is none.
  std::string complaint(int local_rank);
  // No worker of this node is left.
  void ended();

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun

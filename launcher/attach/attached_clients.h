#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/common/unique_fd.h"
#include "ddprun/launcher/attach/recent_output.h"
#include "ddprun/launcher/output/output.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// The clients of ddprun attach: each follows the output of one rank of this node over a connection of the control
// socket. A client that reads slowly loses output, with a notice of how much; it never delays a worker.
//
// Ownership: owns the connections; the loop must outlive it. Threads: single-threaded on the loop, which calls the
// handlers. Errors: none thrown; a connection that fails is closed.
class AttachedClients {
 public:
  static constexpr std::size_t max_clients = 16;
  static constexpr std::size_t max_queued = std::size_t{256} * 1024;  // bytes queued for one client

  struct Handlers {
    // Returns why this rank cannot be followed here; empty if it can.
    std::function<std::string(int rank)> refusal;
    // Returns the streams of the rank that do not pass through this process.
    std::function<std::vector<UnseenStream>(int rank)> unseen;
  };

  AttachedClients(boost::asio::io_context& loop, Handlers handlers);
  ~AttachedClients();
  AttachedClients(const AttachedClients&) = delete;
  AttachedClients& operator=(const AttachedClients&) = delete;

  // A worker wrote these bytes.
  void feed(int rank, Console::Stream stream, std::string_view bytes);
  // A client asks for a rank: it gets the end of the rank's output, then what is new.
  void attach(int rank, UniqueFd connection);
  // Workers have been started: refuses the clients whose ranks are no longer here, and follows the files of the new
  // workers.
  void workers_started();
  // The job has ended. Waits briefly for clients that have not read everything.
  void finish(int exit_code);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun

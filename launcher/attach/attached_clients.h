#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "launcher/attach/recent_output.h"
#include "launcher/output/output.h"
#include "rendezvous/agent_relay.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// The clients of ddprun attach: each follows the output of one rank over a connection of the control socket. The output
// of a rank of another node comes from the agent there (agent_relay.h), for which this one is the follower; and agents
// of other nodes follow ranks of this one. A client that reads slowly loses output, with a notice of how much; it never
// delays a worker, nor the messages of the rendezvous: a follower elsewhere has at most RelayLimits::window in flight.
//
// Ownership: owns the connections; the loop must outlive it. Threads: single-threaded on the loop, which calls the
// handlers. Errors: none thrown; a connection that fails is closed.
class AttachedClients {
 public:
  static constexpr std::size_t max_clients = 16;  // connections, and followers elsewhere

  struct Handlers {
    // Returns why this rank cannot be followed here; empty if it can.
    std::function<std::string(int rank)> refusal;
    // Returns the streams of the rank that do not pass through this process.
    std::function<std::vector<UnseenStream>(int rank)> unseen;
    // Sends a message to the agent of another node. Returns why it cannot be sent; empty if it was.
    std::function<std::string(const RelayMessage&)> relay;
  };

  AttachedClients(boost::asio::io_context& loop, Handlers handlers);
  ~AttachedClients();
  AttachedClients(const AttachedClients&) = delete;
  AttachedClients& operator=(const AttachedClients&) = delete;

  // A worker wrote these bytes.
  void feed(int rank, Console::Stream stream, std::string_view bytes);
  // A client asks for a rank: it gets the end of the rank's output, then what is new.
  void attach(int rank, UniqueFd connection);
  // The agent of another node has sent a message: one that follows a rank of this node, or one whose rank a client here
  // follows.
  void received(const RelayMessage& message);
  // A session with the rendezvous server has begun, in which no request has been made.
  void session_began();
  // The session has ended; the reason is for the clients that follow ranks of other nodes.
  void session_lost(const std::string& reason);
  // The workers of a round have been started: follows ranks that are no longer here to their new nodes, and the files
  // of the new workers.
  void round_started();
  // The round has other nodes, and the workers of this one have ranks that are higher by so much: follows ranks that
  // are no longer here to their nodes.
  void round_changed(int by);
  // A worker has been started in the place of another: follows its files.
  void worker_replaced();
  // Call before a report to the rendezvous that may end the job: sends followers elsewhere what the workers have
  // written until now, as far as it may be in flight.
  void flush();
  // The job has ended. Waits briefly for clients that have not read everything.
  void finish(int exit_code);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun

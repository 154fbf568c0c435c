#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/membership/membership_hub.h"
#include "rendezvous/store/store_server.h"

namespace ddprun {

// The server at an endpoint: the store server, and the memberships of the jobs whose agents have sessions with it.
// Ownership: owns the server; the event loop must outlive it. The destructor closes all connections.
// Threads: the server's event loop only. Errors: none thrown.
class HostedEndpoint {
 public:
  HostedEndpoint(boost::asio::io_context& loop, std::unique_ptr<StoreServer> server, MembershipHubOptions options = {});
  ~HostedEndpoint();
  HostedEndpoint(const HostedEndpoint&) = delete;
  HostedEndpoint& operator=(const HostedEndpoint&) = delete;

  // The TCP port on which the server listens.
  std::uint16_t port() const { return server_->port(); }
  StoreServer& server() { return *server_; }
  MembershipHub& hub() { return hub_; }
  // This process exits before the job has ended: notifies and closes all sessions.
  void withdraw(const std::string& reason);
  // The job of this process has ended: refuses new jobs, and calls done once from the loop, when no session is left.
  // The jobs that have not ended are waited for, with a line in the log that names them; once there is none, sessions
  // whose nodes have not taken the job result are waited for at most for `results`.
  void drain(std::chrono::milliseconds results, std::function<void()> done);

 private:
  struct Drain;
  void wait_for_results();
  void session_ended();
  std::string serving_text() const;

  boost::asio::io_context& loop_;
  std::unique_ptr<StoreServer> server_;
  MembershipHub hub_;
  std::shared_ptr<Drain> drain_;
};

}  // namespace ddprun

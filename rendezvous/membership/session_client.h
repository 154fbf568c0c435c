#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ddprun/rendezvous/rendezvous.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct SessionClientOptions {
  std::string host;
  std::uint16_t port = 29400;
  // Called before each new try to reach a server that does not answer; an agent whose host owns the endpoint takes over
  // there.
  std::function<void()> before_retry;
  // How long to try to get back into a session that was lost. Only in a job that may start its workers anew
  // (JobPolicy::may_be_replaced), and not at all when 0.
  std::chrono::milliseconds rejoin_timeout{0};
};

// An agent's session with the rendezvous server (SESSIONS.md): the Rendezvous of the c10d back end.
//
// join() dials until a server answers, at most for the policy's join_timeout, so agents may start in any order. A beat
// goes out each keep_alive_interval and comes back. When the session ends against its will (the server went away, was
// silent for keep_alive_max_attempt intervals, or counted this node as lost), ContactBroken says so, and the server is
// dialled again for rejoin_timeout; the node comes back with its id and its last round. ContactLost ends it all, with
//   Errc::timeout          nobody answered in time, naming the endpoint and what to check
//   Errc::usage            this node was refused (other options, another job of the same id)
//   Errc::connection_lost  the server went away and was not back in time
//   Errc::peer_lost        the server does not want this node any more
// and then join() may be called again.
// Lives on the event loop handed in, which must live longer; the handler may destroy this object.
class SessionClient final : public Rendezvous {
 public:
  SessionClient(boost::asio::io_context& loop, SessionClientOptions options);
  ~SessionClient() override;

  void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) override;
  void ready(std::int64_t generation, std::uint16_t worker_store_port) override;
  void report_success(std::int64_t generation) override;
  void report_preempted(std::int64_t generation) override;
  void report_workers(std::int64_t generation, const std::vector<WorkerReport>& changed) override;
  void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures) override;
  void request_stop(const std::string& who) override;
  void leave(const std::string& reason) override;

 private:
  class Session;
  boost::asio::io_context& loop_;
  const SessionClientOptions options_;
  std::shared_ptr<Session> session_;
};

}  // namespace ddprun

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "rendezvous/membership/server_choice.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/trust/credentials.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

class NodeSessions;

struct SessionClientOptions {
  std::string host;
  std::uint16_t port = 29400;
  // Called for each dial of a job of one node: a connection to the server in this process, which needs no
  // authentication; an empty descriptor: the server is dialled at its address.
  std::function<UniqueFd()> within_process;
  // Called before each redial, so that an agent on the endpoint's host can start to serve it.
  std::function<void()> before_retry;
  // Called with the numeric addresses of a host name each time it has been looked up, before they are dialled.
  std::function<void(const std::vector<std::string>&)> on_addresses;
  // The time for which to redial after a session was lost; 0: not at all. It has an effect only in a job that may
  // replace a lost node (JobPolicy::may_be_replaced).
  std::chrono::milliseconds rejoin_timeout{0};
  std::shared_ptr<const Credentials> credentials = nullptr;  // null: sends no token, clear text
  // Where the server is, and what this client learns of it; null: always at the host and port above.
  ServerChoice* choice = nullptr;
  // The time for which to redial a server that does not know the token: it may be that of an earlier job.
  std::chrono::milliseconds refusal_patience{10'000};
};

// An agent's session with the rendezvous server (SESSIONS.md): the Rendezvous of the c10d back end.
//
// join() dials until a server answers, at most for the policy's join_timeout, so agents may start in any order. The
// client sends a heartbeat each keep_alive_interval, which the server returns. If the session is lost (the connection
// broke, no frame came for keep_alive_max_attempt intervals, or the server dropped this node), the handler gets
// ContactBroken, and the client redials for rejoin_timeout; it rejoins with the same node id and its last round.
// The lease of ContactBroken ends heartbeat_timeout() after this node sent the last frame that the server has answered:
// not before that can the server count it as lost for its silence. Nothing is left of it if heartbeats were missing, or
// if the server dropped this node. The time during which this process was stopped counts. Where another server can be
// elected, the client tells ServerChoice of a server that has sent nothing for heartbeat_timeout() less one keep-alive
// interval, or, where the workers wait, for JobPolicy::support_bound(), and that does not answer a heartbeat then.
//
// Ownership: the event loop must outlive this object; the handler may destroy it.
// Threads: all calls and the handler on the event loop.
// Errors: ContactLost, after which join() may be called again, with
//   Errc::timeout          no server answered in time; names the endpoint, or its name that is not resolved, and
//                          what to check
//   Errc::usage            the server refused this node (other options, another job of the same id, no token), or one
//                          of the two sides has not known the token for refusal_patience
//   Errc::connection_lost  the session was lost and could not be restored in time
//   Errc::peer_lost        the server dropped this node and does not let it return
class SessionClient final : public Rendezvous {
 public:
  SessionClient(boost::asio::io_context& loop, SessionClientOptions options);
  ~SessionClient() override;

  void join(const NodeInfo& self, const JobPolicy& policy, Handler handler) override;
  void ready(std::int64_t generation, std::uint16_t worker_store_port) override;
  void report_success(std::int64_t generation) override;
  void report_preempted(std::int64_t generation) override;
  void report_node(std::int64_t generation, const NodeReport& report) override;
  void report_failure(std::int64_t generation, const std::vector<WorkerFailure>& failures,
                      Survivors survivors) override;
  void answer_recovery(std::int64_t generation, const std::string& refusal) override;
  void request_stop(const std::string& who) override;
  void leave(const std::string& reason) override;
  void ask_to_leave(const std::string& reason) override;
  void report_recoverable(std::int64_t generation, bool able) override;
  void keep_round(bool done) override;
  void give_up_round() override;
  bool relays() const override { return true; }
  bool relay(const RelayMessage& message) override;
  // ServerChoice::target() is another one now: a session that is being opened elsewhere is given up.
  void redial();
  // ServerChoice has given up the server of the session, which is silent.
  void give_server_up();
  void on_relay(RelayHandlers handlers) override { relay_handlers_ = std::move(handlers); }
  void on_silence(std::function<bool()> workers_wait) override { workers_wait_ = std::move(workers_wait); }

 private:
  boost::asio::io_context& loop_;
  const SessionClientOptions options_;
  RelayHandlers relay_handlers_;
  std::function<bool()> workers_wait_;
  std::shared_ptr<NodeSessions> sessions_;  // of the last join(); null before the first
};

}  // namespace ddprun

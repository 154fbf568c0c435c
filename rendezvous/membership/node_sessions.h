#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/deadline.h"
#include "common/timer.h"
#include "rendezvous/membership/node_round.h"
#include "rendezvous/membership/server_connection.h"
#include "rendezvous/membership/server_liveness.h"
#include "rendezvous/membership/server_texts.h"
#include "rendezvous/membership/session_client.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/store/host_lookup.h"

namespace ddprun {

// The sessions of a node with rendezvous servers, one after the other: one join() of a SessionClient, from the first
// dial to the end of the last session. The header of SessionClient says what it does.
// Ownership: its coroutine keeps it alive until stop() or leave(); the loop must outlive it. Threads: the loop's only.
// Errors: as SessionClient.
class NodeSessions : public std::enable_shared_from_this<NodeSessions> {
 public:
  using Handler = Rendezvous::Handler;

  NodeSessions(boost::asio::io_context& loop, SessionClientOptions options, NodeInfo self, JobPolicy policy,
               Handler handler, RelayHandlers relay, std::function<bool()> workers_wait);

  void start();
  void stop();
  // The owner may exit right after this, so the frame is written now if the socket accepts it.
  void leave(const std::string& reason);

  // Does nothing without a session.
  void send(const NodeFrame& frame);
  bool has_session() const { return established_ && !closed_ && !end_reason_; }
  void ready(std::int64_t generation, std::uint16_t worker_store_port);
  void request_stop(const std::string& who);
  void keep_round(bool done);
  void give_up_round();
  void redial();
  void give_server_up();

 private:
  using Time = std::chrono::steady_clock::time_point;
  // The result of an attempt to open a session.
  struct Attempt {
    bool timed_out = false;
    bool connected = false;
    bool within_process = false;  // the connection does not leave this process
    bool refused = false;         // it ended in the authentication
    bool unresolved = false;      // it ended in the lookup of the host's name
  };

  static std::string session_request(const NodeFrame& frame);

  // ---- the loop of attempts
  boost::asio::awaitable<void> run(std::shared_ptr<NodeSessions> self);
  std::chrono::steady_clock::duration next_pause(std::chrono::steady_clock::duration backoff) const;
  bool may_be_torch_store() const;
  bool refused_too_long();
  bool may_rejoin() const;
  void begin_rejoin(const std::string& problem);
  void extend_to(Time until);
  NodeInfo self_for_join() const;
  void give_up(const std::string& problem);
  void report_waiting(const std::string& problem);
  std::string lost_text(const std::string& problem) const;

  // ---- one attempt and its session
  boost::asio::awaitable<std::string> attempt();
  boost::asio::awaitable<std::string> dial();
  boost::asio::awaitable<std::string> serve();
  boost::asio::awaitable<std::string> connect();
  bool connect_within_process();
  boost::asio::awaitable<std::string> authenticate();
  boost::asio::awaitable<bool> probe_torch_store();
  boost::asio::awaitable<std::string> read();
  void begin_attempt();
  std::string problem_of_timeout() const;
  void drop_connection();
  void end_attempt();
  void end_session(const std::string& why);
  void close();

  // ---- frames from the server
  void receive(ServerFrame frame);
  bool follows(const SessionServer& server);
  void acknowledge(std::int64_t sent_us);
  void adopt(const Round& round);
  void handle(ServerBeat&& frame);
  void handle(SessionServer&& frame);
  void handle(ServerMoved&& frame);
  void handle(ElectorateConfirmed&& frame);
  void handle(VoteReply&&) {}      // only sent to VoteAsked
  void handle(RequestAnswer&&) {}  // only sent to status and stop requests
  void handle(JoinRefused&& frame);
  void handle(NodeDropped&& frame);
  void handle(SessionShutdown&& frame);
  void handle(RoundProposed&& frame);
  void handle(SessionStarted&& frame);
  void handle(RoundChanged&& frame);
  void handle(RoundResumed&& frame);
  void handle(WorkersReplaced&& frame);
  void handle(ReplacementRefused&& frame);
  void handle(JobEnded&& frame);
  template <class Event>
  void handle(Event&& event);
  void emit(RendezvousEvent event);
  void fail(Errc code, const std::string& text);

  // ---- time
  void set_watchdog();
  void begin_session();
  void schedule_heartbeat();
  void send_heartbeat();
  void beat();
  void watch_silence(std::chrono::steady_clock::duration pause);
  void check_silence();
  void end_round();
  void end_lease();

  const SessionClientOptions options_;
  const ServerTexts texts_;
  NodeInfo self_;
  const JobPolicy policy_;
  Handler handler_;
  RelayHandlers relay_;
  const std::function<bool()> workers_wait_;  // may be unset

  boost::asio::io_context& loop_;
  std::shared_ptr<ServerConnection> connection_;  // this attempt's
  rendezvous::HostLookup lookup_;
  Timer watchdog_, beat_timer_, silence_timer_, lease_timer_;
  boost::asio::steady_timer pause_;

  HostPort target_;   // that is dialled
  bool own_ = false;  // the server there is in this process
  Attempt attempt_;
  bool dialling_ = false;
  bool established_ = false;               // the server has answered JOIN
  std::optional<std::string> end_reason_;  // why this session is ending
  bool closed_ = false;                    // this join is over

  ServerLiveness liveness_;
  NodeRound round_;
  std::string server_node_;          // of the last server that has named itself
  bool server_ends_ = false;         // it has said so
  bool may_have_successor_ = false;  // the server of this session, which has named itself
  std::int64_t seen_us_ = 0;         // of the last frame that this node has acknowledged

  Deadline::Clock::time_point began_;
  Deadline join_deadline_;
  std::optional<Deadline::Clock::time_point> refused_since_;
  std::string lost_reason_;    // why the previous session was lost; empty in the first
  std::string last_problem_;   // the problem of the last attempt
  bool name_problem_ = false;  // it is that the host's name was not resolved
  std::string reported_problem_;
};

}  // namespace ddprun

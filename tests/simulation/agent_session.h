#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/stall_aware_clock.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/node_info.h"
#include "rendezvous/rendezvous_event.h"
#include "tests/simulation/network.h"
#include "tests/simulation/simulation.h"

namespace ddprun::testing {

// An agent's session over simulated connections: the counterpart of SessionClient, with its timeouts and heartbeats.
class AgentSession : public std::enable_shared_from_this<AgentSession> {
 public:
  using Handler = std::function<void(int job, const RendezvousEvent&)>;

  AgentSession(Simulation& simulation, ProcessPtr process, Host& own, Host& endpoint, NodeInfo self, JobPolicy policy,
               Duration rejoin_timeout, Handler handler);

  void start();
  void send(const NodeFrame& frame);
  void leave(const std::string& reason);
  void keep_round(bool done);
  void give_up_round();
  Time lease_end() const { return lease_end_; }

 private:
  void attempt();
  void give_up_attempt();
  void handle_frame(const Packet& packet);
  void closed();
  void beat(int attempt);
  // The session was lost.
  void end_session(Errc code, const std::string& why);
  void fail(Errc code, const std::string& text);
  void close();
  Duration next_lease();
  void end_lease();
  void end_round() { in_round_ = kept_ = false; }
  void record_answer();

  Simulation& simulation_;
  const ProcessPtr process_;
  Host& own_;
  Host& endpoint_;
  NodeInfo self_;
  const JobPolicy policy_;
  const Duration rejoin_timeout_;
  Handler handler_;

  Time join_deadline_;
  bool rejoining_ = false;
  StallAwareClock liveness_clock_;
  StallAwareClock::Duration last_heard_{};
  ConnectionPtr connection_;
  int attempts_ = 0;
  bool established_ = false;
  bool closed_ = false;
  std::deque<Time> unanswered_;  // when JOIN and the heartbeats were sent that await their answers
  Time known_at_{};
  Time lease_end_{};
  bool kept_ = false;
  bool done_ = false;
  bool in_round_ = false;
  std::shared_ptr<const ServerFrame> proposal_;  // the latest; shared, since a round of many nodes is large
  int own_index_ = 0;
  int restarts_used_ = 0;  // of the latest round, replacements included
  std::uint64_t group_generation_ = 0;
  HostPort store_;                // of the workers of the latest round
  std::uint16_t store_port_ = 0;  // of the one that this node serves, or would
};

inline constexpr std::uint16_t rendezvous_port = 29400;

}  // namespace ddprun::testing

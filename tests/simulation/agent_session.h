#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ddprun/rendezvous/membership/session_protocol.h"
#include "ddprun/rendezvous/membership/stall_aware_clock.h"
#include "ddprun/rendezvous/rendezvous.h"
#include "tests/simulation/network.h"
#include "tests/simulation/world.h"

namespace ddprun::testing {

// An agent's session over simulated connections: what SessionClient is in a process, with its patience and its beats.
class AgentSession : public std::enable_shared_from_this<AgentSession> {
 public:
  using Handler = std::function<void(int job, const RendezvousEvent&)>;

  AgentSession(World& world, ProcessPtr process, Host& own, Host& endpoint, NodeInfo self, JobPolicy policy,
               Duration rejoin_timeout, Handler handler);

  void start();
  void send(const NodeFrame& frame);
  void leave(const std::string& reason);

 private:
  void attempt();
  void give_up_attempt();
  void hear(const Packet& packet);
  void closed();
  void beat(int attempt);
  // The session has ended against its will.
  void part(Errc code, const std::string& why);
  void lose(Errc code, const std::string& text);
  void close();

  World& world_;
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
  bool over_ = false;
  std::shared_ptr<const ServerFrame> proposal_;  // the latest; shared, as a round of many nodes is large
  int place_ = 0;
};

inline constexpr std::uint16_t rendezvous_port = 29400;

}  // namespace ddprun::testing

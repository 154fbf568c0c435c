#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/rendezvous/membership/membership.h"
#include "tests/simulation/network.h"
#include "tests/simulation/world.h"

namespace ddprun::testing {

// The real Membership behind simulated connections: what MembershipHub is in a process. Frames go through the real
// codec.
class Server final : public Listener, public std::enable_shared_from_this<Server> {
 public:
  Server(World& world, ProcessPtr process) : world_(world), process_(std::move(process)) {}

  ProcessPtr process() const override { return process_; }
  void accept(const ConnectionPtr& connection) override;

  // Calls done when all sessions have ended; newcomers are turned away.
  void drain(std::function<void()> done);
  // Before its process goes away on purpose.
  void announce_shutdown(const std::string& reason);

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  using SessionId = std::uint64_t;
  struct Session {
    ConnectionPtr connection;
    JobPtr job;  // none before JOIN
    std::string node;
    int attempt = 0;  // of the node, so far
  };

  void hear(SessionId id, const Packet& packet);
  void closed(SessionId id);
  void end_session(SessionId id);
  void take_join(SessionId id, const SessionJoin& frame, int attempt);
  template <class Frame>
  void take(SessionId, const Frame&) {}  // what has no part in rounds
  void take(SessionId id, const SessionBeat& frame);
  void take(SessionId id, const SessionReady& frame);
  void take(SessionId id, const SessionSuccess& frame);
  void take(SessionId id, const SessionFailure& frame);
  void take(SessionId id, const SessionLeave& frame);
  JobPtr job_for(const JobPolicy& policy);
  static bool speaks_for_node(SessionId id, const Session& session);
  void deliver(const JobPtr& job, const MembershipMessages& messages);
  void say(const JobPtr& job, const MembershipMessage& message);
  void send(SessionId id, std::shared_ptr<const ServerFrame> frame, int place);
  void arm(const JobPtr& job);

  World& world_;
  const ProcessPtr process_;
  JobPtr job_;  // without a verdict
  std::map<SessionId, Session> sessions_;
  SessionId next_id_ = 1;
  bool turning_away_ = false;
  std::function<void()> drained_;
};

}  // namespace ddprun::testing

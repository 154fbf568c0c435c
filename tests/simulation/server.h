#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/membership/membership.h"
#include "tests/simulation/network.h"
#include "tests/simulation/simulation.h"

namespace ddprun::testing {

// The real Membership behind simulated connections: the counterpart of MembershipHub. Frames pass through the real
// codec.
class Server final : public Listener, public std::enable_shared_from_this<Server> {
 public:
  Server(Simulation& simulation, ProcessPtr process) : simulation_(simulation), process_(std::move(process)) {}

  ProcessPtr process() const override { return process_; }
  void accept(const ConnectionPtr& connection) override;

  // Calls done when all sessions have ended; new sessions are refused.
  void drain(std::function<void()> done);
  // Call before its process exits on purpose.
  void announce_shutdown(const std::string& reason);

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  using SessionId = std::uint64_t;
  struct NodeSession {
    ConnectionPtr connection;
    JobPtr job;  // none before JOIN
    std::string node;
    int attempt = 0;  // attempt of the node
  };

  void handle_packet(SessionId id, const Packet& packet);
  void closed(SessionId id);
  void end_session(SessionId id);
  void handle_join(SessionId id, const SessionJoin& frame, int attempt);
  template <class Frame>
  void handle(SessionId, const Frame&) {}  // frames that do not concern rounds
  void handle(SessionId id, const SessionBeat& frame);
  void handle(SessionId id, const SessionReady& frame);
  void handle(SessionId id, const SessionSuccess& frame);
  void handle(SessionId id, const SessionFailure& frame);
  void handle(SessionId id, const SessionRecovery& frame);
  void handle(SessionId id, const WorkersRecoverable& frame);
  void handle(SessionId id, const SessionNode& frame);
  void handle(SessionId id, const SessionLeave& frame);
  void handle(SessionId id, const LeaveRequest& frame);
  JobPtr job_for(const JobPolicy& policy);
  static bool is_current_session(SessionId id, const NodeSession& session);
  void deliver(const JobPtr& job, const MembershipMessages& messages);
  void send_message(const JobPtr& job, const MembershipMessage& message);
  void send(SessionId id, std::shared_ptr<const ServerFrame> frame, int index);
  void arm(const JobPtr& job);

  Simulation& simulation_;
  const ProcessPtr process_;
  JobPtr job_;  // the one that has not ended
  std::map<SessionId, NodeSession> sessions_;
  SessionId next_id_ = 1;
  bool refusing_sessions_ = false;
  std::function<void()> on_drained_;
};

}  // namespace ddprun::testing

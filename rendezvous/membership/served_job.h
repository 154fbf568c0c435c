#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/timer.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/relay_table.h"
#include "rendezvous/membership/session_protocol.h"
#include "rendezvous/store/session_hub.h"
#include "rendezvous/succession/gathering.h"
#include "rendezvous/succession/server_lease.h"

namespace ddprun {

struct ServedJobOptions {
  MembershipOptions membership;
  // A node closes its session once it has the job result; after this time the server closes it.
  std::chrono::milliseconds result_grace{std::chrono::seconds(60)};
  // The GatherBounds of an elected server are these at most.
  std::chrono::milliseconds gather{300};
  std::chrono::milliseconds gather_living{1200};
};

// Returns how long an elected server waits for nodes: at most a quarter of what is left of their patience with a lost
// server when they may support another one. Where nothing is left, they renew their support at each interval still.
GatherBounds gather_bounds(const JobPolicy& policy, const ServedJobOptions& options);

// A job asks its owner by these calls, and tells it what happens. They may come within any call of the job.
class JobOwner {
 public:
  virtual bool is_open(SessionId session) const = 0;
  // All nodes of the round are ready, and none of them has been told yet.
  virtual void round_starts(const std::string& run_id, std::int64_t generation) = 0;
  // The session of a node has ended, in a job in which another server can be elected.
  virtual void node_lost(const std::string& run_id, const std::string& node) = 0;
  // The job has ended or has no nodes left: its run id is free.
  virtual void ended(const std::string& run_id) = 0;
  // This server may not decide for the job any more. The owner ends the job's sessions.
  virtual void deposed(const std::string& run_id) = 0;

 protected:
  ~JobOwner() = default;
};

// A job at its rendezvous server: its Membership, the sessions of its nodes, and the timer of both. It passes frames of
// nodes to what decides (Membership, RelayTable, ServerLease) and sends what they answer.
//
// Where another server can be elected, this one decides while the nodes support it; what they send meanwhile waits. An
// elected server waits first for the nodes that can come.
//
// Ownership: shared by its owner and its nodes' sessions; the loop and the sender must outlive it. Nothing is called
// once the owner is destroyed. Threads: the loop's only. Errors: none thrown.
class ServedJob : public std::enable_shared_from_this<ServedJob> {
 public:
  ServedJob(boost::asio::io_context& loop, SessionSender& sender, std::weak_ptr<JobOwner> owner,
            const JobPolicy& policy, const ServedJobOptions& options);

  // Call one of both once. elected: this server has been elected for the job.
  void begin();
  void begin_elected(const ServerName& self, const Electorate& electorate);
  // A node has the server in its process: another one can be elected in its place. earlier: see ServerLease.
  void begin_lease(const std::string& own_node, std::uint64_t earlier);

  void join(SessionId session, const SessionJoin& join, const SessionAddresses& addresses);
  // A frame of the node, in a session that has joined. JOIN and what begins a session otherwise are ignored.
  void receive(SessionId session, const std::string& node, NodeFrame frame);
  void session_closed(SessionId session, const std::string& node);
  // The node's process has ended.
  void node_ended(const std::string& node);
  // The node, which may be on its way to this server, has sent a message to this node since the job lost its server.
  void node_lives(const std::string& node);
  // A user asks for the job's end, or another rendezvous uses its run id; it takes effect once the server may decide.
  void stop(const std::string& who);
  void conflict(const std::string& why);
  // The server shuts down. The job has ended then if it cannot wait for another server.
  void server_leaves(const std::string& why);
  // Tells all nodes why and closes their sessions. The job is over for this server.
  void end_sessions(const ServerFrame& why);
  // Its owner has another job of the run id.
  void replaced() { over_ = true; }
  void cancel();

  const JobPolicy& policy() const { return membership_.policy(); }
  JobStatus status() const;
  bool has_formed() const { return membership_.has_formed(); }
  bool ended() const { return membership_.ended(); }
  bool has_session(const std::string& node) const { return sessions_.contains(node); }
  // Returns whether the server may decide for the job now, without more support.
  bool acts();
  // Returns whether this server may not decide for the job any more; its owner is told once.
  bool deposed();
  // The lease where another server can be elected; null elsewhere.
  ServerLease* lease() { return lease_ ? &*lease_ : nullptr; }
  // The number of the last set of nodes on which it decided as the job's first server; 0: none.
  std::uint64_t last_first_set() const { return last_first_set_; }

 private:
  using Event = std::function<void()>;
  // The state of an elected server that does not act yet.
  struct Elected {
    struct Node {
      SessionJoin join;
      SessionAddresses addresses;
    };
    Gathering gathering;
    std::map<std::string, Node> nodes;  // that have come
  };
  // A node's new session, and the one that it had.
  struct SessionChange {
    SessionId joining, superseded;
  };

  bool is_current(SessionId session, const std::string& node) const;
  bool restore_or_close(SessionChange both, const std::string& node, MembershipMessages& messages);
  void handle(SessionId session, const std::string& node, NodeFrame& frame);
  void leave(SessionId session, const std::string& node, const std::string& reason);
  void ask_leave(SessionId session, const std::string& node, const std::string& reason);
  void acknowledge(const std::string& node, const SessionSeen& frame);

  bool supported();
  void decide(Event event);
  void release_held();
  void ask_support();
  void announce_server(SessionId session);
  void announce_confirmed();
  void adopt(Round& round);
  void adopt(RoundResumed& resumed);
  void gather();
  void act_elected();

  void relay(RelayTable::Deliveries deliveries);
  void node_left(const std::string& node, const std::string& how);
  void deliver(MembershipMessages messages);
  template <class What>
  void post(const std::vector<std::string>& to, What what);
  void send(SessionId session, const ServerFrame& frame);

  void arm();
  void tick();
  Membership::Time due();
  void retire();

  SessionSender& sender_;
  const std::weak_ptr<JobOwner> owner_;
  const ServedJobOptions options_;
  Membership membership_;
  Timer timer_;
  bool armed_ = false;
  bool over_ = false;                          // its owner has it no more
  std::map<std::string, SessionId> sessions_;  // node id -> its current session
  RelayTable relay_;
  std::optional<ServerLease> lease_;  // in a job in which another server can be elected
  std::deque<Event> held_;            // while the lease lacks support
  Membership::Time support_asked_{};  // of the nodes, while there are any
  std::optional<Elected> elected_;    // this server has been, and does not act yet
  std::uint64_t last_first_set_ = 0;
};

}  // namespace ddprun

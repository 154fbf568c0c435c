#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/etcd/job_records.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {

struct EtcdMoment {
  Membership::Time steady;
  std::int64_t wall_us = 0;  // since the epoch
};

// The decisions of the node that leads a job: the nodes' records go in; the announcement to all nodes, and the state
// for the next leader, come out. Membership makes the decisions. A state machine without I/O; times are passed in.
// Ownership: a value. Threads: not thread-safe. Errors: none thrown.
class JobLeader {
 public:
  struct NodeEntry {  // a node's record in etcd
    std::string id;
    NodeRecord record;
  };

  // Takes over from the records of one revision; nodes in order of joining. If no node of the state is alive, that job
  // is over: a new one starts, with the policy of the first node.
  JobLeader(EtcdMoment now, std::string session, std::vector<NodeEntry> nodes, std::optional<JobState> state,
            std::optional<JobAnnouncement> announcement);

  void node_written(EtcdMoment now, const std::string& id, const NodeRecord& record);
  void node_erased(EtcdMoment now, const std::string& id);
  void tick(EtcdMoment now);
  Membership::Time next_tick() const { return membership_->next_tick(); }

  // The announcement or the state has changed since take_state().
  bool dirty() const { return dirty_; }
  void set_dirty() { dirty_ = true; }  // a write failed
  JobAnnouncement announcement() const { return announcement_; }
  JobState take_state(EtcdMoment now);

  bool ended() const { return membership_->ended(); }
  // The job has ended, and all other recipients of the job result have left.
  bool all_others_left(const std::string& self) const;

 private:
  void start_job(EtcdMoment now);
  void reset_job(const JobPolicy& policy);
  bool resume(EtcdMoment now, const JobState& state, std::optional<JobAnnouncement> announcement);
  void handle_record(EtcdMoment now, const std::string& id, const NodeRecord& record);
  void handle_report(EtcdMoment now, const std::string& id, const NodeRecord& record);
  void after_events(EtcdMoment now);
  void apply(const MembershipMessages& messages);
  void apply(const std::vector<std::string>& to, const MembershipMessage::What& what);
  void reject(const std::vector<std::string>& ids, bool lost, const std::string& text);
  bool any_recipient_left() const;

  const std::string session_;
  std::map<std::string, NodeRecord> nodes_;  // nodes whose key exists
  std::vector<std::string> order_;           // the keys of nodes_, in the order of joining
  std::optional<Membership> membership_;     // set by the constructor
  std::map<std::string, std::string> sessions_;
  JobAnnouncement announcement_;
  std::optional<std::uint64_t> checked_event_;  // the Membership::liveness_event() for which a check was started
  std::int64_t sequence_ = 0;
  bool dirty_ = true;
};

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/rendezvous/etcd/job_records.h"
#include "ddprun/rendezvous/membership/membership.h"

namespace ddprun {

struct EtcdMoment {
  Membership::Time steady;
  std::int64_t wall_us = 0;  // since the epoch
};

// The one node at a time that decides for a job: the nodes' records in, what all are told (the board) and what the
// next leader has to know (the state) out. Every decision is Membership's. No I/O, no clock.
class JobLeader {
 public:
  struct Seen {  // a node's record as it stands in etcd
    std::string id;
    NodeRecord record;
  };

  // Takes over from the records at one revision; nodes in the order in which they came. A state none of whose nodes is
  // alive belongs to a job that is over: then a new one begins, under the policy of the node that came first.
  JobLeader(EtcdMoment now, std::string session, std::vector<Seen> nodes, std::optional<JobState> state,
            std::optional<JobBoard> board);

  void node_written(EtcdMoment now, const std::string& id, const NodeRecord& record);
  void node_erased(EtcdMoment now, const std::string& id);
  void tick(EtcdMoment now);
  Membership::Time next_tick() const { return membership_->next_tick(); }

  // Something has changed that is to be written. Building the records settles it.
  bool dirty() const { return dirty_; }
  void set_dirty() { dirty_ = true; }  // a write was in vain
  JobBoard board() const { return board_; }
  JobState take_state(EtcdMoment now);

  bool ended() const { return membership_->ended(); }
  // The verdict has been given, and of the nodes that hear it none is left but this one.
  bool alone_at_the_end(const std::string& self) const;

 private:
  void begin(EtcdMoment now);
  void begin_under(const JobPolicy& policy);
  bool resume(EtcdMoment now, const JobState& state, std::optional<JobBoard> board);
  void take(EtcdMoment now, const std::string& id, const NodeRecord& record);
  void take_report(EtcdMoment now, const std::string& id, const NodeRecord& record);
  void after_events(EtcdMoment now);
  void follow(const MembershipMessages& messages);
  void follow(const std::vector<std::string>& to, const MembershipMessage::What& what);
  void turn_away(const std::vector<std::string>& ids, bool lost, const std::string& text);
  bool anybody_of_the_verdict_here() const;

  const std::string session_;
  std::map<std::string, NodeRecord> nodes_;  // alive: their keys are there
  std::vector<std::string> order_;           // of nodes_, as they came
  std::optional<Membership> membership_;     // always, but for a moment
  std::map<std::string, std::string> sessions_;
  JobBoard board_;
  std::optional<std::int64_t> called_;  // the generation whose roll has been called
  std::int64_t sequence_ = 0;
  bool dirty_ = true;
};

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/rendezvous/etcd/etcd_kv.h"
#include "ddprun/rendezvous/etcd/job_keys.h"
#include "ddprun/rendezvous/etcd/job_leader.h"
#include "ddprun/rendezvous/etcd/job_records.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// One node of a job whose rounds live in etcd (ETCD.md): what the agent says and what etcd shows in; transactions, and
// events for the agent, out. Whichever node holds the leader's key decides for all, through a JobLeader; every write of
// the leader is fenced by that key. No I/O, no clock.
//
// The owner reads and watches all keys that begin with watched(), hands what it sees to resync() and changed() in
// order, carries out next_txn() one at a time, repeating it until it has an answer, and calls tick() at next_tick().
class JobNode {
 public:
  // session: unique to this life of the node.
  JobNode(JobKeys keys, std::string session, NodeInfo self, JobPolicy policy, SessionAddresses addresses);

  // ---- from the agent
  void ready(std::int64_t generation, std::uint16_t worker_store_port);
  void success(EtcdMoment now, std::int64_t generation);
  void preempted(EtcdMoment now, std::int64_t generation);
  void failure(EtcdMoment now, std::int64_t generation, const std::vector<WorkerFailure>& failures);
  void request_stop(const std::string& who);
  // Takes the node's keys away; a leader first lets all others hear the verdict, and removes the job's. Then gone().
  void finish();
  bool gone() const { return gone_; }
  // What has to be written to go on purpose and at once.
  EtcdTxn leave(const std::string& reason) const;

  // ---- from etcd
  std::string watched() const { return fence_ ? keys_.all() : keys_.control(); }
  // Everything there is under watched(), as of one revision.
  void resync(EtcdMoment now, const std::string& prefix, const std::vector<EtcdKeyValue>& all, std::int64_t revision);
  void changed(EtcdMoment now, const EtcdChange& change);
  // None while one is under way.
  std::optional<EtcdTxn> next_txn(EtcdMoment now);
  void answered(const EtcdTxnResult& result);

  // ---- time
  void tick(EtcdMoment now);
  std::optional<Membership::Time> next_tick() const;

  // ---- for the agent
  std::vector<RendezvousEvent> take_events() { return std::exchange(events_, {}); }
  bool leads() const { return leader_.has_value(); }

 private:
  enum class Step { none, write_node, campaign, lead, finish };

  void report(NodeRecord::Report report, std::int64_t generation);
  void hear_board(const std::string& text);
  void hear_round(const JobBoard& board);
  void hear_waiting(const JobBoard& board);
  void forward_to_leader(EtcdMoment now, const EtcdChange& change);
  void adopt_late_win();
  void step_down();

  EtcdTxn write_node();
  EtcdTxn campaign();
  EtcdTxn lead(EtcdMoment now);
  EtcdTxn erase_all();
  void node_written(const EtcdTxnResult& result);
  void campaigned(const EtcdTxnResult& result);
  void led(const EtcdTxnResult& result);
  EtcdCompare fenced() const;

  const JobKeys keys_;
  NodeRecord record_;
  std::string written_;  // the record as last handed out
  bool record_changed_ = true;
  std::int64_t node_revision_ = 0;  // of the node's key as it was last seen; 0: it is not there

  Step step_ = Step::none;  // under way
  bool synced_ = false;     // control keys have been read
  std::optional<EtcdKeyValue> leader_key_;
  std::optional<std::int64_t> fence_;      // the leader's key is ours: its create revision
  std::optional<JobLeader> leader_;        // and what it decides about has been read
  std::string state_text_, leader_board_;  // as last handed out
  std::int64_t state_revision_ = 0;
  std::string board_text_;  // as last heard

  std::int64_t proposed_ = -1;
  std::int64_t started_ = -1;
  std::string said_;   // what is waited for
  bool over_ = false;  // the agent has heard its last event
  bool finishing_ = false;
  bool gone_ = false;
  std::vector<RendezvousEvent> events_;
};

}  // namespace ddprun

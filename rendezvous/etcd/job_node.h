#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/etcd/etcd_kv.h"
#include "rendezvous/etcd/job_keys.h"
#include "rendezvous/etcd/job_leader.h"
#include "rendezvous/etcd/job_records.h"
#include "rendezvous/job_policy.h"
#include "rendezvous/job_result.h"
#include "rendezvous/node_info.h"
#include "rendezvous/rendezvous_event.h"

namespace ddprun {

// One node of a job whose rounds are kept in etcd (ETCD.md): the agent's calls and etcd's keys go in, transactions and
// events for the agent come out. The node that holds the leader's key also runs a JobLeader; every write of the leader
// is fenced by that key. A state machine without I/O; times are passed in.
//
// The owner reads and watches all keys that begin with watched() and passes them to resync() and changed() in order. It
// executes next_txn(), one at a time, retrying until there is a response, and calls tick() at next_tick().
// Ownership: a value. Threads: not thread-safe. Errors: resync() and changed() throw Errc::protocol for a key with
//   unexpected data.
class JobNode {
 public:
  // session is unique to this join of the node.
  JobNode(JobKeys keys, std::string session, NodeInfo self, JobPolicy policy, SessionAddresses addresses);

  // ---- from the agent
  void ready(std::int64_t generation, std::uint16_t worker_store_port);
  void success(EtcdMoment now, std::int64_t generation);
  void preempted(EtcdMoment now, std::int64_t generation);
  void failure(EtcdMoment now, std::int64_t generation, const std::vector<WorkerFailure>& failures);
  void request_stop(const std::string& who);
  // Removes the node's keys. A leader waits until all others have the job result, and removes the job's keys too.
  // gone() is true afterwards.
  void finish();
  bool gone() const { return gone_; }
  // The transaction with which this node leaves at once.
  EtcdTxn leave(const std::string& reason) const;

  // ---- from etcd
  std::string watched() const { return fence_ ? keys_.all() : keys_.control(); }
  // Takes all keys under watched() at one revision.
  void resync(EtcdMoment now, const std::string& prefix, const std::vector<EtcdKeyValue>& all, std::int64_t revision);
  void changed(EtcdMoment now, const EtcdChange& change);
  // Returns nullopt if no transaction is due, or one is in progress.
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
  void handle_announcement(const std::string& text);
  void handle_round(const JobAnnouncement& announcement);
  void report_waiting(const JobAnnouncement& announcement);
  void forward_to_leader(EtcdMoment now, const EtcdChange& change);
  void adopt_late_election();
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
  std::string written_;  // the record of the last write
  bool record_changed_ = true;
  std::int64_t node_revision_ = 0;  // the revision of the node's key when last seen; 0: it does not exist

  Step step_ = Step::none;  // the step in progress
  bool synced_ = false;     // control keys have been read
  std::optional<EtcdKeyValue> leader_key_;
  std::optional<std::int64_t> fence_;              // this node holds the leader's key: its create revision
  std::optional<JobLeader> leader_;                // this node leads, and has read the job's keys
  std::string state_text_, written_announcement_;  // as last written
  std::int64_t state_revision_ = 0;
  std::string announcement_text_;  // as last read

  std::int64_t proposed_ = -1;
  std::int64_t started_ = -1;
  std::string reported_waiting_;
  bool closed_ = false;  // the agent has got its last event
  bool finishing_ = false;
  bool gone_ = false;
  std::vector<RendezvousEvent> events_;
};

}  // namespace ddprun

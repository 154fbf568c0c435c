#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job_policy.h"
#include "rendezvous/job_result.h"
#include "rendezvous/membership/membership_snapshot.h"
#include "rendezvous/node_info.h"
#include "rendezvous/round.h"

// The values of a job's keys in etcd (ETCD.md), and their JSON.
namespace ddprun {

inline constexpr int job_records_version = 5;

// The value of a node's key: its join data and its latest report.
struct NodeRecord {
  enum class Report { none, ready, success, preempted, failure };

  int version = job_records_version;
  std::string session;  // unique to this join of the node
  NodeInfo info;
  JobPolicy policy;
  SessionAddresses addresses;
  Report report = Report::none;
  std::int64_t generation = 0;  // the generation that the report is about
  std::uint16_t worker_store_port = 0;
  std::vector<WorkerFailure> failures;
  std::int64_t sent_us = 0;         // the node's clock at the report, to which its failures' time_us are relative
  std::int64_t liveness_check = 0;  // the latest check that it has answered
  std::optional<std::string> left;  // the reason, if it has left
  std::optional<std::string> stop;  // the requester, if it requests the end of the job
};

// The leader's message to all nodes.
struct JobAnnouncement {
  enum class Phase { forming, proposed, running, ended };
  struct Rejected {
    bool lost = false;  // the node counts as lost; otherwise it is refused
    std::string text;
  };

  Phase phase = Phase::forming;
  Round round;                        // the latest one proposed
  std::vector<std::string> sessions;  // those of the round's members
  std::string reason;                 // the reason for the proposal
  std::string waiting;
  std::int64_t liveness_check = 0;           // a number; every node copies a new one to its own key
  std::map<std::string, Rejected> rejected;  // by session
  JobResult result;                          // if the job has ended
  std::vector<std::string> recipients;       // if the job has ended: the nodes that the result is for
};

// The state that a leader keeps for the next one.
struct JobState {
  std::string writer;                           // the session of the leader that wrote it
  std::int64_t sequence = 0;                    // number of the write
  std::map<std::string, std::string> sessions;  // node -> its session
  MembershipSnapshot membership;
};

std::string to_json(const NodeRecord& record);
std::string to_json(const JobAnnouncement& announcement);
std::string to_json(const JobState& state);
// The parsers throw Errc::protocol naming the key and the field. Only version and session are parsed from a node record
// of another version.
NodeRecord parse_node_record(std::string_view key, std::string_view text);
JobAnnouncement parse_job_announcement(std::string_view key, std::string_view text);
JobState parse_job_state(std::string_view key, std::string_view text);

}  // namespace ddprun

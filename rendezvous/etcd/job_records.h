#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/rendezvous/membership/membership_snapshot.h"
#include "ddprun/rendezvous/rendezvous.h"

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
  std::int64_t generation = 0;  // that the report is about
  std::uint16_t worker_store_port = 0;
  std::vector<WorkerFailure> failures;
  std::int64_t sent_us = 0;         // the node's clock at the report, to which its failures' time_us are relative
  std::int64_t liveness_check = 0;  // the latest that it has answered
  std::optional<std::string> left;  // it has left: the reason
  std::optional<std::string> stop;  // it requests the end of the job: who asked
};

// The leader's message to all nodes.
struct JobAnnouncement {
  enum class Phase { forming, proposed, running, ended };
  struct Rejected {
    bool lost = false;  // counts as lost; otherwise refused
    std::string text;
  };

  Phase phase = Phase::forming;
  Round round;                        // the latest proposed
  std::vector<std::string> sessions;  // of the round's members
  std::string reason;                 // of the proposal
  std::string waiting;
  std::int64_t liveness_check = 0;           // a number; every node copies a new one to its own key
  std::map<std::string, Rejected> rejected;  // by session
  JobResult result;                          // ended
  std::vector<std::string> recipients;       // ended: the nodes that the job result is for
};

// The state that a leader keeps for the next one.
struct JobState {
  std::string writer;                           // session
  std::int64_t sequence = 0;                    // of its writes
  std::map<std::string, std::string> sessions;  // node -> its session
  MembershipSnapshot membership;
};

std::string to_json(const NodeRecord& record);
std::string to_json(const JobAnnouncement& announcement);
std::string to_json(const JobState& state);
// Throw Errc::protocol naming the key and the field. Of a node record of another version only version and session are
// parsed.
NodeRecord parse_node_record(std::string_view key, std::string_view text);
JobAnnouncement parse_job_announcement(std::string_view key, std::string_view text);
JobState parse_job_state(std::string_view key, std::string_view text);

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/rendezvous/membership/membership_snapshot.h"
#include "ddprun/rendezvous/rendezvous.h"

// What a job's keys in etcd hold (ETCD.md), and its JSON.
namespace ddprun {

inline constexpr int job_records_version = 2;

// A node's own key, under its lease: what it brings, and the last thing it has to say.
struct NodeRecord {
  enum class Report { none, ready, success, preempted, failure };

  int version = job_records_version;
  std::string session;  // of this life of the node: unique
  NodeInfo info;
  JobPolicy policy;
  SessionAddresses addresses;
  Report report = Report::none;
  std::int64_t generation = 0;  // that the report is about
  std::uint16_t worker_store_port = 0;
  std::vector<WorkerFailure> failures;
  std::int64_t sent_us = 0;    // the node's clock when it reported: what time_us are to be compared with
  std::int64_t roll_call = 0;  // the latest it has answered
  std::optional<std::string> left;
  std::optional<std::string> stop;  // the job is to end: who wants it
};

// What the leader says to all.
struct JobBoard {
  enum class Phase { forming, proposed, running, ended };
  struct TurnedAway {
    bool lost = false;  // counted as lost; else refused
    std::string text;
  };

  Phase phase = Phase::forming;
  Round round;                        // the latest proposed
  std::vector<std::string> sessions;  // of the round's members
  std::string reason;                 // of the proposal
  std::string waiting;
  std::int64_t roll_call = 0;                     // every node answers a new one at once
  std::map<std::string, TurnedAway> turned_away;  // by session
  Verdict verdict;                                // ended
  std::vector<std::string> heard_by;              // ended: the nodes that the verdict concerns
};

// What a leader keeps for the next one.
struct JobState {
  std::string writer;                           // session
  std::int64_t sequence = 0;                    // of its writes
  std::map<std::string, std::string> sessions;  // node -> its session
  MembershipSnapshot membership;
};

std::string to_json(const NodeRecord& record);
std::string to_json(const JobBoard& board);
std::string to_json(const JobState& state);
// Throw Errc::protocol naming the key and the field. Of a node's record of another version only version and session
// are read.
NodeRecord parse_node_record(std::string_view key, std::string_view text);
JobBoard parse_job_board(std::string_view key, std::string_view text);
JobState parse_job_state(std::string_view key, std::string_view text);

}  // namespace ddprun

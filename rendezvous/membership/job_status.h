#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/node_report.h"

namespace ddprun {

// The state of one job as its rendezvous server reports it (ddprun status). A value. Times are ages in milliseconds, so
// that the clocks of server and client need not agree.
struct JobStatus {
  using Age = std::chrono::milliseconds;

  struct Worker {
    WorkerReport now;
    Age since{};  // the time in this state
  };
  struct Node {
    std::string host;
    std::string address;  // as others dial it; empty before it has been in a round
    std::string state;    // "member", "spare" (the round is full), "waiting" (no round yet)
    int group_rank = -1;  // -1: not a member
    int first_rank = -1;
    int nproc = 1;
    Age since{};  // since it joined
    Age heard{};  // since its last frame
    std::optional<NodeUsage> usage = {};
    bool warm = false;  // a spare whose processes stand by for each of its local ranks
    std::vector<Worker> workers;
  };

  std::string run_id;
  std::string program;
  std::string phase;        // "forming", "starting", "running", "ended"
  std::string waiting_for;  // forming: one line
  std::int64_t generation = 0;
  int restarts_used = 0;  // replacements of single workers included
  int max_restarts = 0;
  int min_nodes = 1;
  int max_nodes = 1;
  int world_size = 0;
  std::string store;   // the workers' store, host:port; empty if none is served
  int node_count = 0;  // may exceed the size of nodes, which has at most max_nodes_listed
  Age since{};         // the time in this phase
  std::vector<Node> nodes;

  static constexpr std::size_t max_nodes_listed = 2048;
};

// The training that the workers report: that of the lowest rank with the latest step; nullopt if none reports any.
std::optional<TrainingReport> training_of(const JobStatus& job);

// {"jobs": [...]} on one line. A job that trains has "training", which is the result of training_of() and not parsed.
std::string to_json(const std::vector<JobStatus>& jobs);
// Returns the same in at most `limit` bytes, without the nodes if they are too many; nullopt if that is not enough.
std::optional<std::string> to_json_within(std::vector<JobStatus> jobs, std::size_t limit);
// Throws Errc::protocol with the reason.
std::vector<JobStatus> parse_job_statuses(std::string_view json);

}  // namespace ddprun

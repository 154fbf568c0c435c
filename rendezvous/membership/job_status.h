#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// One job as its rendezvous server sees it, for people and tools that ask (ddprun status). Times are ages: the clocks
// of the one who asks and of the server need not agree.
struct JobStatus {
  using Age = std::chrono::milliseconds;

  struct Worker {
    WorkerReport now;
    Age since{};  // in this state
  };
  struct Node {
    std::string host;
    std::string address;  // as others dial it; empty before it has been in a round
    std::string state;    // "member", "spare" (the round is full), "waiting" (there is no round yet)
    int group_rank = -1;  // -1: no member
    int first_rank = -1;
    int nproc = 1;
    Age since{};  // part of the job
    Age heard{};  // since its last sign of life
    std::vector<Worker> workers;
  };

  std::string run_id;
  std::string program;
  std::string phase;        // "forming", "starting", "running", "ended"
  std::string waiting_for;  // forming: one line
  std::int64_t generation = 0;
  int restarts_used = 0;
  int max_restarts = 0;
  int min_nodes = 1;
  int max_nodes = 1;
  int world_size = 0;
  std::string store;   // the workers', host:port; empty while none is served
  int node_count = 0;  // may be more than nodes has
  Age since{};         // in this phase
  std::vector<Node> nodes;

  static constexpr std::size_t max_nodes_told = 2048;
};

// {"jobs": [...]}, on one line.
std::string to_json(const std::vector<JobStatus>& jobs);
// Throws Errc::protocol naming what is wrong.
std::vector<JobStatus> parse_job_statuses(std::string_view json);

}  // namespace ddprun

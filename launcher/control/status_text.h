#pragma once

#include <string>

#include "rendezvous/membership/job_status.h"

namespace ddprun {

// The output of ddprun status, one line each for the job, its nodes and their workers:
//   job train7 (train.cfg): running for 2 min 03 s, generation 1, 1 of 3 restarts used, 2 of 2 nodes, 8 workers
//     training: step 120 of 630, epoch 2, loss 0.3210, 12345 samples/s, 25 s left
//     node 0  host a (10.0.0.1), ranks 0-3, joined 5 min 10 s ago
//       rank 0  pid 4711  running for 2 min 03 s
//     spare   host c, joined 12 s ago
std::string status_text(const JobStatus& job);

// "job train7"; "the job" where --rdzv_id was not given: "job none" would read as if there were none.
std::string job_name(const std::string& run_id);

// "running for 2 min 03 s", "frozen by SIGSTOP for 12 s", "exited with 3 4 s ago"
std::string worker_state_text(const JobStatus::Worker& worker);

}  // namespace ddprun

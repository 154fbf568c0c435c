#pragma once

#include <string>
#include <vector>

#include "launcher/control/group_progress.h"
#include "rendezvous/membership/job_status.h"

// The output of ddprun status --collectives, as text and as JSON.
namespace ddprun {

// The diagnosis, then a line for each operation that a rank is in, or one for a rank that is in none:
//   group/0: operation #412, allreduce(sum) of 262144 float32: rank 3 (pid 88 on host n2) has not entered it: ...
//     rank  host  pid  done  operation                             bytes    state    for
//     0     n1    71   #411  #412 allreduce(sum) of 262144 float32  1048576  started  12.1 s
//     3     n2    88   #410  #411 barrier                           0        started  12.3 s  frozen by SIGSTOP
std::string group_text(const GroupProgress& group);

// The text for a job without any process group.
std::string no_groups_text();

// {"run_id": ..., "generation": ..., "store": ..., "groups": [{"name", "diagnosis", "ranks": [...]}]}, on one line.
std::string groups_json(const JobStatus& job, const std::vector<GroupProgress>& groups);

}  // namespace ddprun

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/deadline.h"
#include "ddprun/rendezvous/membership/job_status.h"
#include "ddprun/rendezvous/progress/rank_record.h"

// The process groups of a running job, as their ranks tell of themselves in the workers' store.
namespace ddprun {

struct RankProgress {
  using Age = std::chrono::milliseconds;

  std::optional<RankRecord> record;  // none: it has not come to the group
  Age heard{};                       // since the record, by the clocks of both machines
  std::string process;               // what its agent knows beside that: "frozen by SIGSTOP for 12 s"; else empty

  // Since an operation came into its state.
  Age since(const RankOperation& operation) const { return operation.age + heard; }
};

struct GroupProgress {
  std::string name;  // of its keys: "group/0", "group/0/sub/1.0", "mine/generation/2/group/0" of an ElasticGroup
  std::vector<RankProgress> ranks;
};

// Those in which some rank still is, in order of their names. Asks the store that the job's workers meet at. Throws
// what that throws, and Errc::unreachable when there is none now.
std::vector<GroupProgress> ask_for_progress(const JobStatus& job, Deadline deadline);

}  // namespace ddprun

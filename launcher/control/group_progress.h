#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "rendezvous/membership/job_status.h"
#include "rendezvous/progress/rank_record.h"
#include "rendezvous/trust/credentials.h"

// The process groups of a running job, as their ranks report themselves in the workers' store.
namespace ddprun {

struct RankProgress {
  using Age = std::chrono::milliseconds;

  std::optional<RankRecord> record;  // nullopt: the rank has not joined the group
  Age report_age{};                  // since the record was written, by the clocks of both machines
  std::string process;  // an abnormal state of its process, such as "frozen by SIGSTOP for 12 s"; else empty

  // Returns for how long the operation has been in its state.
  Age since(const RankOperation& operation) const { return operation.age + report_age; }
};

struct GroupProgress {
  std::string name;  // the group's name: "group/0", "group/0/sub/1.0", "mine/generation/2/group/0" of an ElasticGroup
  std::vector<RankProgress> ranks;
};

// The means by which a client of the workers' store connects to it.
struct StoreAccess {
  std::shared_ptr<const Credentials> credentials = nullptr;  // null: sends no token, clear text
  std::stop_token stop{};                                    // a stop request ends a call, with Errc::aborted
};

// The groups that at least one rank has not left, sorted by name, from the workers' store. Throws what the store's
// client throws, and Errc::unreachable if the job has no store at the moment.
std::vector<GroupProgress> query_progress(const JobStatus& job, Deadline deadline, const StoreAccess& access = {});

}  // namespace ddprun

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/dashboard/job_model.h"
#include "rendezvous/membership/job_status.h"

namespace ddprun::dashboard {

// Passes to a model of a job what its rendezvous server reports, for processes that are no agent of the job. Data that
// only an agent has, such as causes of failures and times of recoveries, are not known then. No I/O and no clock.
//
// Ownership: the model outlives it. Threads: one at a time. Errors: none.
class FollowedJob {
 public:
  explicit FollowedJob(JobModel& model) : model_(model) {}

  void status(Milliseconds now, const JobStatus& job);
  // The server does not answer, for this reason. If the workers' last states show how the job ended, it has ended so.
  void unheard(Milliseconds now, const std::string& problem);

  const std::optional<JobStatus>& last() const { return last_; }

 private:
  void follow_round(Milliseconds now, const JobStatus& job);
  void follow_training(Milliseconds now, const JobStatus& job);

  JobModel& model_;
  std::optional<JobStatus> last_;
  std::int64_t generation_ = -1;  // the last round that was passed to the model
  bool started_ = false;          // the start of that round was passed, too
  std::int64_t first_step_ = -1;  // the first step of that round that was reported
  Milliseconds stepped_{};        // the time of that step
};

}  // namespace ddprun::dashboard

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ddprun/launcher/dashboard/job_model.h"
#include "ddprun/rendezvous/membership/job_status.h"

namespace ddprun::dashboard {

// Tells a model of a job what its rendezvous server says of it, for those who are no agent of the job. What an agent
// alone knows, such as causes of failures and times of recoveries, is not known then. No I/O and no clock.
//
// Ownership: the model outlives it. Threads: one at a time. Errors: none.
class FollowedJob {
 public:
  explicit FollowedJob(JobModel& model) : model_(model) {}

  void status(Milliseconds now, const JobStatus& job);
  // The server does not answer, for this reason. If the workers' last states say how the job ended, it has ended so.
  void unheard(Milliseconds now, const std::string& problem);

  const std::optional<JobStatus>& last() const { return last_; }

 private:
  void follow_round(Milliseconds now, const JobStatus& job);
  void follow_training(Milliseconds now, const JobStatus& job);

  JobModel& model_;
  std::optional<JobStatus> last_;
  std::int64_t generation_ = -1;  // the round that the model has been told of
  bool started_ = false;          // it has, too
  std::int64_t first_step_ = -1;  // of that round, as far as it was heard
  Milliseconds stepped_{};        // when that was
};

}  // namespace ddprun::dashboard

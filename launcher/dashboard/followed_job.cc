#include "launcher/dashboard/followed_job.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "launcher/control/status_text.h"

namespace ddprun::dashboard {
namespace {

Round round_of(const JobStatus& job) {
  Round round{.generation = job.generation,
              .restarts_used = job.restarts_used,
              .self = -1,
              .members = {},
              .world_size = job.world_size};
  for (const auto& node : job.nodes)
    if (node.group_rank >= 0)
      round.members.push_back({.host = node.host,
                               .address = node.address,
                               .group_rank = node.group_rank,
                               .nproc = node.nproc,
                               .first_rank = node.first_rank});
  return round;
}

bool ended_well(const WorkerReport& worker) {
  return worker.exit_code == 0 && worker.signal_number == 0;
}

// Returns the result of a job whose last status this was; nullopt if the status does not show it.
std::optional<JobResult> outcome_of(const JobStatus& job) {
  int ended = 0;
  for (const auto& node : job.nodes)
    for (const auto& worker : node.workers) {
      if (worker.now.state != WorkerReport::State::ended) continue;
      ++ended;
      if (!ended_well(worker.now))
        return JobResult{.exit_code = worker.now.exit_code,
                         .reason = fmt::format("rank {} on host {} {}", node.first_rank + worker.now.local_rank,
                                               node.host, worker_state_text(worker))};
    }
  if (ended > 0 && ended == job.world_size) return JobResult{.success = true, .reason = "all workers exited with 0"};
  if (job.phase == "ended") return JobResult{.reason = "the job has ended; its rendezvous server does not say how"};
  return std::nullopt;
}

}  // namespace

void FollowedJob::status(Milliseconds now, const JobStatus& job) {
  model_.heard(now);
  if (job.phase == "forming") {
    const bool news = !last_ || last_->waiting_for != job.waiting_for;
    if (news && !job.waiting_for.empty()) model_.waiting(now, job.waiting_for);
  } else if (job.phase == "ended") {
    model_.ended(now, outcome_of(job).value_or(JobResult{}));
  } else {
    follow_round(now, job);
    model_.others(now, job);
    follow_training(now, job);
  }
  last_ = job;
}

void FollowedJob::follow_round(Milliseconds now, const JobStatus& job) {
  const auto round = round_of(job);
  if (std::exchange(generation_, job.generation) != job.generation) {
    started_ = false;
    model_.round_proposed(now, {.round = round, .reason = "as the rendezvous server says"});
  }
  if (job.phase != "running" || round.members.empty()) return;
  if (!std::exchange(started_, true)) {
    first_step_ = -1;
    model_.round_started(now, round);
  } else if (last_ && job.restarts_used > last_->restarts_used) {
    model_.workers_replaced(now, {}, job.restarts_used);
  }
}

// A report has no sums: the steps are counted from the first one that was reported.
void FollowedJob::follow_training(Milliseconds now, const JobStatus& job) {
  const auto report = training_of(job);
  if (!report || report->step <= 0) return;
  if (first_step_ < 0) {
    first_step_ = report->step;
    stepped_ = now;
  }
  TrainingRecord record{.pid = generation_ + 1,
                        .time_ms = now.count(),
                        .step = report->step,
                        .total_steps = report->total_steps,
                        .epoch = report->epoch};
  record.loss = report->loss;
  record.samples_per_s = report->samples_per_s;
  record.seconds_left = report->seconds_left;
  record.first_step_ms = stepped_.count();
  record.steps = report->step - first_step_ + 1;
  const auto part = [&](double share) {
    const double seconds = report->step_seconds * share * static_cast<double>(record.steps);
    return seconds >= 0 ? seconds : 0;
  };
  record.data = part(report->data);
  record.compute = part(report->compute);
  record.communication = part(report->communication);
  model_.job_training(now, record);
}

void FollowedJob::unheard(Milliseconds now, const std::string& problem) {
  const auto outcome = last_ ? outcome_of(*last_) : std::nullopt;
  if (outcome) return model_.ended(now, *outcome);
  model_.silent(now, problem);
}

}  // namespace ddprun::dashboard

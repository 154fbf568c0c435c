#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/group_progress.h"
#include "launcher/dashboard/counted_record.h"
#include "launcher/dashboard/job_view.h"
#include "launcher/dashboard/recoveries.h"
#include "launcher/dashboard/time_account.h"
#include "rendezvous/job_result.h"
#include "rendezvous/membership/job_status.h"
#include "rendezvous/node_report.h"
#include "rendezvous/rendezvous_event.h"
#include "rendezvous/round.h"

namespace ddprun::dashboard {

// The limits of the history that is kept.
struct HistoryLimits {
  std::size_t points = 1024;  // when there are more, every second one is dropped
  std::size_t events = 400;   // the newest ones
  std::size_t generations = 200;
  std::size_t evaluations = 400;
  std::size_t checkpoints = 100;  // those among the events
};

// Makes the view of a job from the data that an agent gets. Every change has a version, so that a client that has seen
// the view of one version gets the changes since then (view_json.h). No I/O and no clock: times are passed in.
//
// Threads: one at a time. Errors: none.
class JobModel {
 public:
  JobModel(JobFacts facts, Milliseconds now, HistoryLimits limits = {});

  void waiting(Milliseconds now, const std::string& text);
  void round_proposed(Milliseconds now, const RoundProposed& proposed);
  // The round has other nodes; the workers of this one run on.
  void round_changed(Milliseconds now, const RoundChanged& change);
  void round_started(Milliseconds now, const Round& round);
  // The workers of this node have changed their state.
  void workers(Milliseconds now, const std::vector<WorkerReport>& changed);
  // Workers of this node have failed, the root cause first.
  void failed(Milliseconds now, const std::vector<WorkerFailure>& failures);
  // These workers of this node, which have failed, are started again while the others keep their processes.
  void workers_replaced(Milliseconds now, const std::vector<int>& local_ranks, int restarts_used);
  void contact_broken(Milliseconds now, const std::string& text);
  // Something happened that does not change what the job does.
  void note(Milliseconds now, const std::string& kind, const std::string& text);
  // This node has left for a time. The time until its next round counts as that before its first one: the job trains
  // or does not without it.
  void left(Milliseconds now);
  // The job has ended. Only the first call counts: an agent may leave a job that ends.
  void ended(Milliseconds now, const JobResult& result);
  // A worker of this node has reported its training.
  void training(Milliseconds now, int local_rank, const TrainingRecord& record);
  // The rendezvous server has reported the other nodes.
  void others(Milliseconds now, const JobStatus& job);
  // The training of the whole job, where no agent reports its own view. steps is the number done since the watch began.
  void job_training(Milliseconds now, const TrainingRecord& record);
  // The job answers, or does not, for this reason. An agent's own job always does.
  void heard(Milliseconds now);
  void silent(Milliseconds now, const std::string& why);
  // The process groups of the workers, as their ranks report them.
  void groups(Milliseconds now, const std::vector<GroupProgress>& groups);
  // The use of this agent's machine.
  void usage(Milliseconds now, const NodeUsage& usage);
  // The number of operations by name that the workers' store has executed.
  void store_operations(const std::map<std::string, std::uint64_t>& counted);
  // Brings the times up to date.
  void tick(Milliseconds now);

  const JobView& view() const { return view_; }
  // A client that has seen this version, or a later one, can continue with changes; an older one needs the whole view.
  Version oldest() const { return oldest_; }
  // The versions in which these parts changed last.
  Version nodes_changed() const { return nodes_changed_; }
  Version generations_changed() const { return generations_changed_; }
  Version collectives_changed() const { return collectives_changed_; }

 private:
  void changed(Milliseconds now);
  void enter(Milliseconds now, Part part, State state);
  void add_event(Milliseconds time, std::string kind, std::string text);
  void add_point(Milliseconds now, const TrainingRecord& record);
  void add_evaluation(const TrainingRecord& record);
  void record_checkpoint(const TrainingRecord& record);
  void lead(Milliseconds now, const TrainingRecord& record);
  void change_leader();
  void count(const TrainingRecord& record);
  void first_step(const Recoveries::FirstStep& step, const TrainingRecord& record);
  void regained(Milliseconds now);
  void generation_started(Milliseconds now, const Round& round);
  void append_generation(Milliseconds now, GenerationView generation);
  void lay_out(Milliseconds now, const Round& round, bool first);
  void go_on(Milliseconds now, const std::string& reason);
  void update(RankView& rank, const RankView& next);
  void take_usage(Milliseconds now, NodeView& node, const NodeUsage& usage);
  RankView* own_rank(int local_rank);

  JobView view_;
  const HistoryLimits limits_;
  Version oldest_ = 0;
  Version nodes_changed_ = 0;
  Version generations_changed_ = 0;
  Version collectives_changed_ = 0;
  bool usage_is_news_ = false;  // clients have not been sent it
  Milliseconds usage_told_{};
  Milliseconds changed_at_{};
  std::map<int, TrainingRecord> told_;  // the last records of the processes that run, by local rank
  int leader_ = 0;                      // the local rank that reports for the whole job
  std::optional<Round> round_;
  TimeAccount account_;
  Recoveries recoveries_;
  CountedRecord counted_;
};

}  // namespace ddprun::dashboard

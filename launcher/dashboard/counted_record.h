#pragma once

#include "launcher/dashboard/job_view.h"
#include "rendezvous/progress/training_record.h"

namespace ddprun::dashboard {

// The part of the training that the totals of a job contain, as the rank counts it that reports for the whole job.
// A record's sums are of one process, which counts from its start; the totals are the job's. A value.
class CountedRecord {
 public:
  // Adds to the totals what the record has beyond what was counted. Returns the difference; its other members are those
  // of the record.
  TrainingRecord count(const TrainingRecord& record, Totals& totals);
  // Another rank reports from now on; its last record.
  void change_to(const TrainingRecord& record);
  // A new round begins, whose processes start again.
  void reset() { counted_ = {}; }

  bool is_of(const TrainingRecord& record) const { return counted_.pid == record.pid; }
  // The steps of the record's process that have been counted.
  std::int64_t steps_of(const TrainingRecord& record) const { return is_of(record) ? counted_.steps : 0; }
  bool has_evaluation(const TrainingRecord& record) const {
    return is_of(record) && counted_.evaluation_step == record.evaluation_step;
  }

 private:
  TrainingRecord counted_;
};

}  // namespace ddprun::dashboard

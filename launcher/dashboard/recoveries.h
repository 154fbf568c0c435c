#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/dashboard/job_view.h"
#include "rendezvous/progress/training_record.h"
#include "rendezvous/round.h"

namespace ddprun::dashboard {

// The generations of a job and the recoveries by which they began: which fault was before each, how long its phases
// took, and how many steps were computed again.
//
// A generation begins with begin(), its workers start with started(), and its first step ends the restart or, where
// others have kept their processes, the healing. If steps are replayed then, the recovery ends once the highest step
// before it has been reached.
//
// A value; generations and totals are those of the view that it is part of. Times are passed in. Threads: one at a
// time. Errors: none.
class Recoveries {
 public:
  explicit Recoveries(std::size_t limit) : limit_(limit) {}

  // This agent has learnt of a fault. detect: the time that it took; none: not known.
  void noticed(Milliseconds now, std::string fault, std::optional<Milliseconds> detect);
  // The reason of a change tells the fault, where no agent of this node has noticed another one.
  void suspect(std::string_view reason);

  void begin(JobView& view, Milliseconds now, GenerationView generation);
  void started(JobView& view, Milliseconds now, const Round& round);
  // The workers of the present generation have not made a step yet.
  void await_step() { stepped_ = false; }

  // The first step of the training in the present generation.
  struct FirstStep {
    Milliseconds time{};
    bool replays = false;     // steps that had been done are repeated
    std::int64_t before = 0;  // the highest step that had been done
  };
  // Takes a record of the rank that reports for the job; counted: the steps of its process that were known. Returns the
  // first step if it is that. accounted: no step was earlier.
  std::optional<FirstStep> take(Milliseconds now, Milliseconds accounted, const TrainingRecord& record,
                                std::int64_t counted);
  void record_first_step(JobView& view, const FirstStep& step, const TrainingRecord& record);
  // The training has reached the step at which it was interrupted. Returns the time that the recovery took.
  Milliseconds regained(JobView& view, Milliseconds now);

 private:
  static void record(Totals& totals, Milliseconds& duration, const char* phase, Milliseconds value);

  std::size_t limit_;
  std::string fault_ = "membership";
  std::optional<Milliseconds> detect_;
  std::optional<Milliseconds> noticed_;  // when this agent learnt of the failure that ended the generation
  Milliseconds phase_began_{};           // the start of a recovery's phase
  std::int64_t highest_ = 0;             // the highest step that was done in any generation
  bool stepped_ = false;                 // a step was done in this generation
};

}  // namespace ddprun::dashboard

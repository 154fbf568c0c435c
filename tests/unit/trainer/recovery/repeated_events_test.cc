#include "ddprun/worker/trainer/observers/observers.h"
#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

const std::string job_text =
    "[model]\nname = linear\n[data]\nname = random\nsamples = 20\ntest_samples = 10\n[train]\nbatch_size = 4\n";

}  // namespace

TEST_CASE("ranks with and without the times of a repeated step make the same operations") {
  TrainingJob job(job_text);
  run_ranks(2, [&](ProcessGroup& group) {
    Replica replica(job);
    const auto session = replica.session(group);
    Progress silent(nullptr, 0);
    Summary summary;
    ObserverList all;
    const auto observer = make_slow_rank_observer({.config = replica.config,
                                                   .progress = silent,
                                                   .checkpoints = nullptr,
                                                   .preemption = nullptr,
                                                   .summary = summary},
                                                  all);
    StepResult result;
    // Rank 1 is slow; it has joined since and does not know.
    if (group.rank() == 0) result.rank_times = {{.forward = Seconds(1)}, {.forward = Seconds(9)}};
    observer->session_started(*session);
    observer->step_finished(
        {.session = *session, .result = result, .total_steps = 5, .last = false, .stops = false, .repeated = true});
    CHECK_NOTHROW(group.barrier({.blocking = true}));
  });
}

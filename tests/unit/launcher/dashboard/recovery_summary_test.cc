#include "launcher/dashboard/recovery_summary.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun::dashboard;
using namespace ddprun::testing;

TEST_CASE("a job without a recovery has no summary of recoveries") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.train(0, 1, 1);
  CHECK(recovery_summary(job.model.view()).empty());
}

TEST_CASE("the summary of a restarted job has its goodput, the phases of its recovery and the repeated steps") {
  WatchedModel job;
  job.fail_after_ten_steps();
  job.recover();
  // It resumed after step 7, and had begun step 11.
  CHECK(recovery_summary(job.model.view()) ==
        std::vector<std::string>{
            "goodput 53.01 %: 7.050 s of training; lost: data 2.250 s, detect 0.200 s, agree 0.300 s, restart 1.500 s, "
            "replay 2.000 s; startup 2.100 s",
            "1 recovery (signal 1): in all 4000 ms; detect 200 ms; agree 300 ms; restart 1500 ms; replay 2000 ms",
            "4 steps were computed again: 256 samples"});
}

TEST_CASE("the summary of replacements has the distribution of each phase") {
  WatchedModel job;
  job.fail_after_ten_steps();
  for (int i = 1; i <= 100; ++i) {
    if (i > 1) job.model.failed(job.now, {{.rank = 1, .local_rank = 1, .host = "a", .exit_code = 1}});
    job.model.workers_replaced(job.now, {1}, i);
    job.after(i);
    job.train(0, 10 + i, 10 + i);
  }
  const auto lines = recovery_summary(job.model.view());
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[1], Catch::Contains("100 recoveries (exit 99, signal 1)") &&
                           Catch::Contains("; heal p50 50, p99 99, max 100 ms") && Catch::Contains("; detect 200 ms;"));
  CHECK(lines[2] == "100 steps were computed again: 6,400 samples");
}

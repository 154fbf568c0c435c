#include "launcher/dashboard/screen_text.h"

#include "common/error.h"
#include "launcher/dashboard/view_json.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

namespace {

std::string screen(const JobModel& model, int rows = 40) {
  return screen_text(snapshot_json(model), 100, rows);
}

}  // namespace

TEST_CASE("the screen of a job that recovered") {
  WatchedModel job;
  job.fail_after_ten_steps();
  job.recover();
  auto late = job.record(1, 10, 3);
  late.pid = 102;
  late.lateness = 0.35;  // for steps of a second
  job.model.training(job.now, 1, late);
  const auto text = screen(job.model);
  CHECK_THAT(text, Catch::StartsWith("shop (train.cfg) on host a\ntraining, step 10 of 100, 64 samples/s, goodput "));
  for (const auto* line :
       {"[====                                    ] 10.0 %, epoch 0\n", "\nloss        █▁▁▁ 0.1  (0.1 to 1)\n",
        "\nsamples/s   ▁▁▁▁ 64  (64 to 64)\n", "\nstep        compute 75 %, communication 0 %, data 25 %\n",
        "\nranks       .3\n",
        "\nround 1     detect 200 ms, agree 300 ms, restart 1,500 ms, replay 2,000 ms, rank 1 on host a",
        "fault: rank 1 on host a was ended by SIGKILL\n"}) {
    CAPTURE(line);
    CHECK_THAT(text, Catch::Contains(line));
  }
  // A low terminal has fewer events.
  CHECK(std::count(text.begin(), text.end(), '\n') > 12);
  const auto low = screen(job.model, 12);
  CHECK(std::count(low.begin(), low.end(), '\n') == 11);
}

TEST_CASE("the curve of the loss at the end of a run is one line, and none of a run too short for one") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  for (std::int64_t step = 1; step <= 3; ++step, job.after(1'000)) job.train(0, step, step);
  CHECK(loss_text(job.model.view(), 80).empty());
  for (std::int64_t step = 4; step <= 8; ++step, job.after(1'000)) job.train(0, step, step);
  CHECK(loss_text(job.model.view(), 80) == "loss █▄▃▂▂▁▁▁ 0.125 after 8 steps, 0.125 to 1\n");
  CHECK(loss_text(job.model.view(), 10).ends_with("0.125 to 1\n"));
}

TEST_CASE("the state of ranks that do not run, and of a job without a training") {
  WatchedModel job;
  job.propose(0);
  job.start(0, 4);
  using State = WorkerReport::State;
  job.model.workers(job.now, {{.local_rank = 1, .pid = 2, .state = State::stopped},
                              {.local_rank = 2, .pid = 3, .state = State::ended},
                              {.local_rank = 3, .pid = 4, .state = State::ended, .exit_code = 1}});
  const auto text = screen(job.model);
  CHECK_THAT(text, Catch::Contains("\nranks       .FdX\n"));
  CHECK_THAT(text, !Catch::Contains("loss"));
}

TEST_CASE("a sentence that is too long for a line goes on in the next one, at a comma") {
  WatchedModel job;
  job.fail_after_ten_steps();
  job.recover();
  CHECK_THAT(screen_text(snapshot_json(job.model), 45, 40),
             Catch::StartsWith("shop (train.cfg) on host a\ntraining, step 10 of 100, 64 samples/s,\ngoodput "));
}

TEST_CASE("a curve has the means of its columns, on eight levels") {
  CHECK(curve_text({}, 10).empty());
  CHECK(curve_text({1, 2, 3, 4, 5, 6, 7, 8}, 8) == "▁▂▃▄▅▆▇█");
  CHECK(curve_text({0, 0, 0, 7}, 2) == "▁▅");
  CHECK(curve_text({5, 5}, 10) == "▁▁");
}

TEST_CASE("text from the job cannot control the terminal, and junk is refused") {
  WatchedModel job;
  job.model.waiting(job.now, "\x1b[2Jnode b");
  CHECK(screen(job.model).find('\x1b') == std::string::npos);
  for (const auto* junk : {"", "{}", "[]", "{\"job\": 1}"}) {
    CAPTURE(junk);
    CHECK_THROWS_AS(screen_text(junk, 80, 24), Error);
  }
}

#include "launcher/dashboard/followed_job.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::dashboard;

namespace {

struct Followed {
  JobModel model{{.run_id = "shop", .program = "train.cfg", .host = "here"}, Milliseconds(1'000)};
  FollowedJob job{model};
  Milliseconds now{1'000};

  static JobStatus status(std::int64_t generation, std::int64_t step) {
    JobStatus status{.run_id = "shop", .phase = "running", .generation = generation, .world_size = 2};
    status.nodes = {{.host = "a",
                     .group_rank = 0,
                     .first_rank = 0,
                     .nproc = 2,
                     .workers = {{.now = {.local_rank = 0, .pid = 70}}, {.now = {.local_rank = 1, .pid = 71}}}}};
    if (step > 0)
      status.nodes[0].workers[0].now.training = TrainingReport{.step = step,
                                                               .total_steps = 100,
                                                               .loss = 0.5,
                                                               .samples_per_s = 64,
                                                               .step_seconds = 0.1,
                                                               .data = 0.25,
                                                               .compute = 0.75};
    return status;
  }
  void hear(const JobStatus& status) {
    now += Milliseconds(1'000);
    job.status(now, status);
  }
  const JobView& view() const { return model.view(); }
};

}  // namespace

TEST_CASE("a job that is followed has its nodes, ranks, steps and curve, without an agent's help") {
  Followed followed;
  followed.hear({.run_id = "shop", .phase = "forming", .waiting_for = "1 of 2 nodes"});
  CHECK(sentence(followed.view()) == "forming: 1 of 2 nodes");
  followed.hear(Followed::status(0, 0));
  CHECK(followed.view().state == State::running);
  REQUIRE(followed.view().ranks.size() == 2);
  CHECK(followed.view().ranks[1].pid == 71);
  followed.hear(Followed::status(0, 5));
  followed.hear(Followed::status(0, 9));
  CHECK(followed.view().state == State::training);
  CHECK(followed.view().points.size() == 2);
  CHECK(followed.view().training->step == 9);
  CHECK(followed.view().totals.steps == 5);
  CHECK(followed.view().ranks[0].shares[0] == 0.25);
  CHECK(followed.view().heard == followed.now);
}

TEST_CASE("rounds and replacements of a followed job are recoveries") {
  Followed followed;
  followed.hear(Followed::status(0, 5));
  auto replaced = Followed::status(0, 6);
  replaced.restarts_used = 1;
  replaced.nodes[0].workers[1].now.pid = 99;
  followed.hear(replaced);
  CHECK(followed.view().recoveries() == 1);
  CHECK(followed.view().restarts_used == 1);
  CHECK(followed.view().ranks[1].pid == 99);
  followed.hear(replaced);
  CHECK(followed.view().recoveries() == 1);
  followed.hear(Followed::status(1, 0));
  CHECK(followed.view().recoveries() == 2);
  followed.hear(Followed::status(1, 5));
  CHECK(followed.view().state == State::recovering);  // it makes steps again
  followed.hear(Followed::status(1, 6));
  CHECK(followed.view().state == State::training);
}

TEST_CASE("when the server is gone, the last states of the workers say how the job ended") {
  using State = WorkerReport::State;
  Followed good;
  auto last = Followed::status(0, 100);
  for (auto& worker : last.nodes[0].workers) worker.now.state = State::ended;
  good.hear(last);
  good.job.unheard(good.now, "refused");
  CHECK(good.view().state == dashboard::State::succeeded);
  CHECK(good.view().result == "all workers exited with 0");

  Followed bad;
  last.nodes[0].workers[1].now.signal_number = 9;
  bad.hear(last);
  bad.job.unheard(bad.now, "refused");
  CHECK(bad.view().state == dashboard::State::failed);
  CHECK_THAT(bad.view().result, Catch::StartsWith("rank 1 on host a ended by SIGKILL"));

  Followed unknown;
  unknown.hear(Followed::status(0, 50));
  const auto before = unknown.view().version;
  unknown.job.unheard(unknown.now, "connection refused");
  CHECK(unknown.view().state == dashboard::State::training);
  CHECK(unknown.view().silence == "connection refused");
  CHECK(unknown.view().version > before);  // the page is updated
  unknown.hear(Followed::status(0, 51));
  CHECK(unknown.view().silence.empty());
}

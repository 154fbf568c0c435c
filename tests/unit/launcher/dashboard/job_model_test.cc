#include "ddprun/launcher/dashboard/job_model.h"

#include <cmath>
#include <numeric>

#include "tests/support/catch.h"
#include "tests/unit/launcher/dashboard/model_time.h"

using namespace ddprun;
using namespace ddprun::dashboard;
using namespace ddprun::testing;

namespace {

double seconds(const JobView& view, Part part) {
  return view.seconds.at(static_cast<std::size_t>(part));
}

}  // namespace

TEST_CASE("a job that trains: its state, its ranks, and a sentence about it") {
  WatchedModel job;
  const auto& view = job.model.view();
  CHECK(view.state == State::forming);
  job.model.waiting(job.now, "1 of 2 nodes");
  CHECK(sentence(view) == "forming: 1 of 2 nodes");
  job.propose(0);
  CHECK(view.state == State::starting);
  job.after(1'000);
  job.start(0);
  CHECK(view.state == State::running);
  CHECK(view.world_size == 2);
  REQUIRE(view.ranks.size() == 2);
  CHECK(view.ranks[1].pid == 2);
  CHECK(view.ranks[1].state == RankView::State::running);
  REQUIRE(view.nodes.size() == 1);
  CHECK(view.nodes[0].host == "a");
  job.after(1'000);
  job.train(0, 1, 1);
  job.after(40'000);
  auto record = job.record(0, 41, 41);
  record.checkpoint_step = 40;
  record.checkpoint_ms = job.now.count() - 1'000;
  job.model.tick(job.now);
  job.model.training(job.now, 0, record);
  CHECK(view.state == State::training);
  // A quarter of the time after the first step was spent on data.
  CHECK(sentence(view) == "training, step 41 of 100, 64 samples/s, goodput 75.0 %, checkpoint 1 s old, 59 s left");
  CHECK(view.points.size() == 2);
  CHECK(view.points.back().loss == 1.0 / 41);
  CHECK(view.events.back().kind == "checkpoint");
  CHECK(view.events.back().step == 40);
}

TEST_CASE("the phases of a recovery are measured, and the time counts as what it was") {
  WatchedModel job;
  job.fail_after_ten_steps();
  const auto& view = job.model.view();
  CHECK(view.state == State::recovering);
  CHECK(view.events.back().text == "rank 1 on host a was ended by SIGKILL");
  job.recover();
  CHECK(view.state == State::training);
  CHECK(view.recoveries() == 1);
  REQUIRE(view.generations.size() == 2);
  const auto& recovery = view.generations[1];
  CHECK(recovery.detect == Milliseconds(200));
  CHECK(recovery.agree == Milliseconds(300));
  CHECK(recovery.restart == Milliseconds(1'500));
  CHECK(recovery.replay == Milliseconds(2'000));
  CHECK(recovery.from_step == 10);
  CHECK(view.generations[0].detect.count() < 0);
  CHECK(view.events.back().kind == "recovered");
  CHECK(view.events.back().text == "generation 1 trains again after 4 s");
  CHECK(view.totals.recoveries.at("signal") == 1);
  CHECK(seconds(view, Part::startup) == Approx(2.1));
  CHECK(seconds(view, Part::detect) == Approx(0.2));
  CHECK(seconds(view, Part::agree) == Approx(0.3));
  CHECK(seconds(view, Part::restart) == Approx(1.5));
  CHECK(seconds(view, Part::replay) == Approx(2));
  CHECK(seconds(view, Part::data) == Approx(2.25));  // of the nine steps after the first
  CHECK(std::accumulate(view.seconds.begin(), view.seconds.end(), 0.0) == Approx(15.4));
  CHECK(view.totals.steps == 13);
  CHECK(view.totals.samples == 13 * 64);
  CHECK(view.totals.step_counts[6] == 13);
}

TEST_CASE("a worker that is replaced alone is a recovery without a replay, and the others stay as they are") {
  WatchedModel job;
  job.fail_after_ten_steps();
  const auto& view = job.model.view();
  const auto samples = view.totals.samples;
  job.after(300);
  job.model.workers_replaced(job.now, 1);
  CHECK(view.state == State::recovering);
  CHECK(view.restarts_used == 1);
  CHECK(view.ranks[0].pid == 1);
  job.model.training(job.now, 0, *view.training);  // the record from before the failure
  CHECK(view.state == State::recovering);
  job.after(700);
  auto record = job.record(0, 11, 11);
  record.first_step_ms = view.training->first_step_ms;  // its process has not started again
  job.model.training(job.now, 0, record);
  CHECK(view.state == State::training);
  CHECK(view.recoveries() == 1);
  REQUIRE(view.generations.size() == 2);
  CHECK(view.generations[1].agree == Milliseconds(300));
  CHECK(view.generations[1].restart == Milliseconds(700));
  CHECK(view.generations[1].replay.count() < 1);
  CHECK(view.totals.samples == samples + 64);
}

TEST_CASE("an evaluation that a replaced process repeats is there once") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.train(0, 1, 1);
  const auto tell = [&](std::int64_t pid, std::int64_t steps, std::int64_t evaluation_step) {
    job.after(1'000);
    auto record = job.record(0, 10, steps);
    record.pid = pid;
    record.evaluation_step = evaluation_step;
    record.evaluation_loss = 0.5;
    job.model.training(job.now, 0, record);
  };
  tell(1, 10, 10);
  tell(77, 0, 0);
  tell(77, 0, 10);
  REQUIRE(job.model.view().evaluations.size() == 1);
  CHECK(job.model.view().evaluations[0].step == 10);
}

TEST_CASE("the cause of a failure, which may repeat how the process ended") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const auto said = [&](WorkerFailure failure) {
    failure.host = "a";
    job.model.failed(job.now, {failure});
    return job.model.view().events.back().text;
  };
  CHECK(said({.signal_number = 9, .cause = "ended by SIGKILL (another process sent it)"}) ==
        "rank 0 on host a was ended by SIGKILL (another process sent it)");
  CHECK(said({.signal_number = 9, .cause = "out of memory: 1 GiB"}) ==
        "rank 0 on host a was ended by SIGKILL: out of memory: 1 GiB");
  CHECK(said({.exit_code = 3, .message = "no file\nat line 3"}) == "rank 0 on host a exited with 3: no file");
}

TEST_CASE("the start ends with the first step, not when a record is read") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.after(1'000);
  auto record = job.record(0, 3, 3);
  record.first_step_ms = job.now.count() - 600;
  job.model.training(job.now, 0, record);
  job.model.tick(job.now);
  CHECK(seconds(job.model.view(), Part::startup) == Approx(0.4));
}

TEST_CASE("a round that no failure caused is a recovery from a change of membership") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.after(1'000);
  job.train(0, 5, 5);
  job.after(1'000);
  job.propose(1, "node c joined");
  job.after(400);
  job.start(1, 3);
  const auto& view = job.model.view();
  CHECK(view.ranks.size() == 3);
  CHECK(view.totals.recoveries.at("membership") == 1);
  CHECK(view.generations[1].detect.count() < 0);
  CHECK(view.generations[1].agree == Milliseconds(400));
  job.after(500);
  job.train(1, 6, 1);  // it lost nothing
  CHECK(view.state == State::training);
  CHECK(view.generations[1].replay == Milliseconds(0));
}

TEST_CASE("without records of the training nothing is said of goodput") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.after(60'000);
  job.model.tick(job.now);
  CHECK(std::isnan(goodput(job.model.view())));
  CHECK(sentence(job.model.view()) == "running");
  job.model.ended(job.now, {.success = true, .reason = "all workers have exited with 0"});
  CHECK(sentence(job.model.view()) == "succeeded");
  CHECK(job.model.view().result == "all workers have exited with 0");
}

TEST_CASE("the curve of a long run keeps its ends and is bounded, and so are events") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  for (std::int64_t step = 1; step <= 5'000; ++step) {
    job.after(200);
    job.train(0, step, step);
    if (step % 4 == 0) job.model.contact_broken(job.now, "broken");
  }
  const auto& view = job.model.view();
  CHECK(view.points.size() <= 1024);
  CHECK(view.points.size() > 500);
  CHECK(view.points.front().step == 1);
  CHECK(view.points.back().step == 5'000);
  CHECK(view.events.size() == 400);
}

TEST_CASE("a rank changes when its rounded lateness or its state does") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const auto late = [&](double seconds) {
    job.after(1'000);
    auto record = job.record(0, 1, 1);
    record.pid = 2;
    record.lateness = seconds;
    job.model.training(job.now, 1, record);
    return job.model.view().ranks[1].version == job.model.view().version;
  };
  CHECK(late(0.0123));
  CHECK(job.model.view().ranks[1].lateness == Approx(0.012));
  CHECK_FALSE(late(0.0121));
  CHECK(late(0.0131));
  CHECK_FALSE(job.model.view().training);  // rank 0 of the node tells of the job
}

TEST_CASE("the other nodes' ranks come from the rendezvous server") {
  WatchedModel job;
  auto round = WatchedModel::round(0);
  round.members.push_back({.node_id = "b-1", .host = "b", .address = "10.0.0.2", .group_rank = 1, .first_rank = 2});
  round.world_size = 3;
  job.propose(0);
  job.model.round_started(job.now, round);
  JobStatus status{.phase = "running", .generation = 0};
  status.nodes = {{.host = "a", .group_rank = 0, .first_rank = 0, .workers = {{.now = {.pid = 77}}}},
                  {.host = "b",
                   .group_rank = 1,
                   .first_rank = 2,
                   .heard = std::chrono::seconds(1),
                   .workers = {{.now = {.pid = 88, .training = TrainingReport{.lateness = 0.5}}}}}};
  job.after(10'000);
  job.model.others(job.now, status);
  const auto& view = job.model.view();
  CHECK(view.ranks[2].pid == 88);
  CHECK(view.ranks[2].lateness == 0.5);
  CHECK(view.ranks[0].pid == 0);  // its own workers it knows better
  CHECK(view.nodes[1].heard == job.now - std::chrono::seconds(1));
  status.generation = 7;
  status.nodes[1].workers[0].now.pid = 99;
  job.model.others(job.now, status);
  CHECK(view.ranks[2].pid == 88);
}

TEST_CASE("numbers and durations as people read them") {
  CHECK(number_text(0) == "0");
  CHECK(number_text(999) == "999");
  CHECK(number_text(1'204'000) == "1,204,000");
  CHECK(number_text(-1234) == "-1,234");
  CHECK(duration_text(59.4) == "59 s");
  CHECK(duration_text(125) == "2 min 05 s");
  CHECK(duration_text(3900) == "1 h 05 min");
}

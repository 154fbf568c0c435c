#include "launcher/dashboard/job_model.h"

#include <cmath>
#include <functional>
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

TEST_CASE("the time in which this node has left the job counts neither as training nor as lost") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.train(0, 1, 1);
  job.after(10'000);
  job.model.tick(job.now);
  const auto before = job.model.view().seconds;
  job.model.left(job.now);
  CHECK(job.model.view().state == State::forming);
  job.after(60'000);
  job.propose(2);
  for (std::size_t i = 0; i < before.size(); ++i)
    if (static_cast<Part>(i) != Part::startup) CHECK(job.model.view().seconds[i] == before[i]);
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
  CHECK(seconds(view, Part::data) == Approx(2.25));  // over the nine steps after the first
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
  job.model.workers_replaced(job.now, {1}, 1);
  CHECK(view.state == State::recovering);
  CHECK(view.restarts_used == 1);
  CHECK(view.ranks[0].pid == 1);
  job.model.training(job.now, 0, *view.training);  // the record is from before the failure
  CHECK(view.state == State::recovering);
  job.after(700);
  auto record = job.record(0, 11, 11);
  record.first_step_ms = view.training->first_step_ms;  // its process has not started again
  job.model.training(job.now, 0, record);
  CHECK(view.state == State::training);
  CHECK(view.recoveries() == 1);
  REQUIRE(view.generations.size() == 2);
  CHECK(view.generations[1].agree == Milliseconds(300));
  CHECK(view.generations[1].replacement == 1);
  CHECK(view.generations[1].restart.count() < 0);
  CHECK(view.generations[1].heal == Milliseconds(700));
  CHECK(view.generations[1].replay.count() < 1);
  CHECK(seconds(view, Part::heal) == Approx(0.7));
  CHECK(view.events.back().text == "generation 0 trains again after 1 s");
  CHECK(view.totals.samples == samples + 64);
}

TEST_CASE("steps that the ranks make again after a return to an earlier one are lost time, and are counted once") {
  WatchedModel job;
  job.fail_after_ten_steps();
  const auto& view = job.model.view();
  const auto steps = view.totals.steps;
  job.after(300);
  job.model.workers_replaced(job.now, {1}, 1);
  job.after(700);
  const auto first = job.now;
  for (const int step : {8, 9, 10}) {
    auto record = job.record(0, step, 10);  // the process counts none of them again
    record.first_step_ms = first.count();
    job.model.training(job.now, 0, record);
    if (step < 10) CHECK(view.state == State::recovering);
    job.after(1'000);
  }
  CHECK(view.state == State::training);
  CHECK(view.generations[1].heal == Milliseconds(700));
  CHECK(view.generations[1].replay == Milliseconds(2'000));
  CHECK(seconds(view, Part::replay) == Approx(2));
  CHECK(view.totals.steps == steps);
  CHECK(view.totals.repeated_steps == 4);  // steps 8 to 10, and the one that was interrupted
}

TEST_CASE("a return by one step repeats it, and is over with it") {
  WatchedModel job;
  job.fail_after_ten_steps();
  const auto& view = job.model.view();
  const auto steps = view.totals.steps;
  job.after(300);
  job.model.workers_replaced(job.now, {1}, 1);
  job.after(700);
  auto record = job.record(0, 10, 10);
  record.first_step_ms = job.now.count();
  job.model.training(job.now, 0, record);
  CHECK(view.state == State::training);
  CHECK(view.generations[1].heal == Milliseconds(700));
  CHECK(view.totals.steps == steps);
  CHECK(view.totals.repeated_steps == 2);  // step 10, and the one that was interrupted
}

TEST_CASE("a replacement's process, and nothing that its predecessor told, is shown of its rank") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  auto record = job.record(0, 1, 1);
  record.pid = 2;
  record.lateness = 0.5;
  job.model.training(job.now, 1, record);
  job.after(1'000);
  job.model.failed(job.now, {{.rank = 1, .local_rank = 1, .host = "a", .exit_code = 3}});
  job.model.workers_replaced(job.now, {1}, 1);
  job.after(10);
  job.model.workers(job.now, {{.local_rank = 1, .pid = 77}});
  const auto& rank = job.model.view().ranks[1];
  CHECK(rank.pid == 77);
  CHECK(rank.state == RankView::State::running);
  CHECK(rank.started == job.now);
  CHECK(rank.replacements == 1);
  CHECK(std::isnan(rank.lateness));
  CHECK(std::isnan(rank.shares[0]));
  CHECK(job.model.view().ranks[0].replacements == 0);
  CHECK(job.model.view().ranks[0].started < job.now);
}

TEST_CASE("when the rank that tells of the job is replaced, another one does, and no step counts twice or not at all") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const auto tell = [&](int local_rank, std::int64_t pid, std::int64_t step, std::int64_t steps) {
    job.after(1'000);
    auto record = job.record(0, step, steps);
    record.pid = pid;
    record.tokens = 10 * record.samples;
    job.model.training(job.now, local_rank, record);
  };
  const auto& view = job.model.view();
  tell(0, 1, 10, 10);
  tell(1, 2, 11, 11);  // the record is read a step later
  CHECK(view.totals.steps == 10);
  job.model.failed(job.now, {{.rank = 0, .local_rank = 0, .host = "a", .signal_number = 9}});
  job.model.workers_replaced(job.now, {0}, 1);
  job.model.workers(job.now, {{.local_rank = 0, .pid = 70}});
  tell(1, 2, 15, 15);
  CHECK(view.state == State::training);
  CHECK(view.training->step == 15);
  CHECK(view.totals.steps == 15);
  CHECK(view.totals.samples == 15 * 64);
  CHECK(view.totals.tokens == 15 * 640);
  tell(0, 70, 16, 1);  // the replacement counts from its start
  tell(1, 2, 16, 16);
  CHECK(view.totals.steps == 16);
  // The next replacement is followed from there, too.
  job.model.failed(job.now, {{.rank = 1, .local_rank = 1, .host = "a", .signal_number = 9}});
  job.model.workers_replaced(job.now, {1}, 2);
  tell(0, 70, 20, 5);
  CHECK(view.totals.steps == 20);
  CHECK(view.totals.samples == 20 * 64);
  CHECK(view.recoveries() == 2);
  CHECK(view.generations.back().replacement == 2);
}

TEST_CASE("how a job ended that its agent leaves is told once, and not over what the rendezvous has said") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.model.ended(job.now, {.exit_code = 143, .reason = "stopped by SIGTERM"});
  job.model.ended(job.now, {.success = true, .reason = "the agent has ended with exit code 0"});
  CHECK(job.model.view().state == State::failed);
  CHECK(job.model.view().result == "stopped by SIGTERM");
  CHECK(sentence(job.model.view()) == "failed");
}

TEST_CASE("what a recovery followed: exit, signal, memory, freeze, a cut, or a change of membership") {
  const auto fault = [](const std::function<void(WatchedModel&)>& happens, const std::string& reason) {
    WatchedModel job;
    job.propose(0);
    job.start(0);
    happens(job);
    job.propose(1, reason);
    REQUIRE(job.model.view().totals.recoveries.size() == 1);
    return job.model.view().totals.recoveries.begin()->first;
  };
  const auto fails = [](const WorkerFailure& failure) {
    return [=](WatchedModel& job) { job.model.failed(job.now, {failure}); };
  };
  const auto nothing = [](WatchedModel&) {};
  CHECK(fault(fails({.exit_code = 3}), "x") == "exit");
  CHECK(fault(fails({.signal_number = 9}), "x") == "signal");
  CHECK(fault(fails({.signal_number = 9, .cause = "out of memory: 1 GiB"}), "x") == "oom");
  CHECK(fault(fails({.exit_code = 1, .message = "rank 2 is frozen by SIGSTOP"}), "x") == "freeze");
  const auto ended = [&](const std::string& seen) {
    return fault(
        fails({.signal_number = 9, .cause = "rank 2 sent no heartbeat for 1.0 s: " + seen + "; ddprun sent it"}), "x");
  };
  CHECK(ended("its process is stopped") == "freeze");
  CHECK(ended("it is frozen or cut off") == "cut");
  CHECK(fault([](WatchedModel& job) { job.model.contact_broken(job.now, "lost"); }, "x") == "cut");
  CHECK(fault(nothing, "node b lost: no heartbeat for 5 s, frozen or cut off") == "cut");
  CHECK(fault(nothing, "rank 3 (local rank 1) on host b failed: ended by SIGKILL; restart 1 of 3") == "signal");
  CHECK(fault(nothing, "rank 3 (local rank 1) on host b failed: exit code 3; restart 1 of 3") == "exit");
  CHECK(fault(nothing, "node c joined") == "membership");
}

TEST_CASE("another number of ranks is an event, the same number is none") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  job.propose(1);
  job.start(1);
  CHECK(job.model.view().events.back().kind == "round");
  job.propose(2);
  job.start(2, 3);
  CHECK(job.model.view().events.back().kind == "layout");
  CHECK(job.model.view().events.back().text == "3 ranks, where there were 2");
}

TEST_CASE("a node's use of its machine is news where it has changed by a percent, every few seconds") {
  WatchedModel job;
  job.propose(0);
  job.start(0);
  const auto told = [&](double busy, int after = 5'000) {
    job.after(after);
    const auto before = job.model.view().version;
    job.model.usage(job.now, {.processors = 4, .busy = busy, .memory = 1000, .memory_used = 500});
    return job.model.view().version > before && job.model.nodes_changed() == job.model.view().version;
  };
  CHECK(told(1));
  CHECK_FALSE(told(1.02));
  CHECK(told(1.2));
  CHECK_FALSE(told(3, 1'000));  // it is sent with the next one
  CHECK(told(3));
  CHECK(told(1.2));
  CHECK(job.model.view().nodes[0].usage->busy == 1.2);
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
  job.train(1, 6, 1);  // it lost no step
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
  CHECK_FALSE(job.model.view().training);  // rank 0 of the node reports for the job
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
  CHECK(view.ranks[0].pid == 0);  // the agent has better data about its own workers
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

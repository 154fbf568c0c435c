#include "worker/trainer/loop.h"

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

// 20 samples give 3 steps an epoch for one rank with batch 8.
const std::string job_text =
    "[model]\nname = linear\n[data]\nname = random\nsamples = 20\ntest_samples = 10\n[train]\nepochs = 2\n"
    "batch_size = 8\n";

// Writes down its calls; requests a stop after `stop_after` steps (0: never).
class Recorder : public Observer {
 public:
  Recorder(std::string& text, std::string name, int stop_after = 0)
      : text_(text), name_(std::move(name)), stop_after_(stop_after) {}

  void session_started(Session&) override { text_ += name_ + "start "; }
  bool stop_requested() const override { return stop_after_ > 0 && steps_ + 1 >= stop_after_; }
  void step_finished(const StepEvent& event) override {
    ++steps_;
    text_ += fmt::format("{}{}/{}{}{}{}{} ", name_, event.session.state().run.step, event.total_steps,
                         event.result.ends_epoch ? " epoch" : "", event.last ? " last" : "",
                         event.stops ? " stops" : "", event.repeated ? " again" : "");
  }
  void run_finished(Session&) override { text_ += name_ + "finished "; }

 private:
  std::string& text_;
  const std::string name_;
  const int stop_after_;
  int steps_ = 0;
};

}  // namespace

TEST_CASE("the loop tells of every step, in the order of the observers") {
  TrainingJob job(job_text);
  Replica replica(job);
  std::string seen;
  ObserverList observers;
  observers.add(std::make_unique<Recorder>(seen, "a"));
  observers.add(std::make_unique<Recorder>(seen, "b"));
  auto end = LoopEnd::stopped;
  run_ranks(1, [&](ProcessGroup& group) { end = run_loop(*replica.session(group), observers); });
  CHECK(end == LoopEnd::finished);
  CHECK(seen ==
        "astart bstart a1/6 b1/6 a2/6 b2/6 a3/6 epoch b3/6 epoch a4/6 b4/6 a5/6 b5/6 a6/6 epoch last b6/6 epoch last "
        "afinished bfinished ");
}

TEST_CASE("all ranks stop after the step in which one of them requests it") {
  TrainingJob job(job_text);
  std::vector<std::string> seen(2);
  std::vector<LoopEnd> ends(2, LoopEnd::finished);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Replica replica(job);
    ObserverList observers;
    observers.add(std::make_unique<Recorder>(seen[rank], "", rank == 1 ? 3 : 0));
    ends[rank] = run_loop(*replica.session(group), observers);
  });
  CHECK(ends == std::vector<LoopEnd>(2, LoopEnd::stopped));
  CHECK(seen == std::vector<std::string>(2, "start 1/4 2/4 epoch 3/4 stops "));
}

TEST_CASE("all ranks go on in another group after the step in which one of them requests it") {
  TrainingJob job(job_text);
  std::vector<std::string> seen(2);
  std::vector<LoopEnd> ends(2, LoopEnd::finished);
  run_ranks(2, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    Replica replica(job);
    ObserverList observers;
    observers.add(std::make_unique<Recorder>(seen[rank], ""));
    int asked = 0;
    ends[rank] = run_loop(*replica.session(group), observers, nullptr, [&] { return rank == 1 && ++asked == 3; });
  });
  CHECK(ends == std::vector<LoopEnd>(2, LoopEnd::changes));
  CHECK(seen == std::vector<std::string>(2, "start 1/4 2/4 epoch 3/4 "));
}

TEST_CASE("a request in the last step changes nothing, and a finished run takes no step") {
  TrainingJob job(job_text);
  Replica replica(job);
  std::string seen;
  const auto run = [&] {
    auto end = LoopEnd::stopped;
    Recorder recorder(seen, "", 6);
    run_ranks(1, [&](ProcessGroup& group) { end = run_loop(*replica.session(group), recorder); });
    return end;
  };
  CHECK(run() == LoopEnd::finished);
  CHECK_THAT(seen, Catch::EndsWith("6/6 epoch last finished "));
  seen.clear();
  CHECK(run() == LoopEnd::finished);
  CHECK(seen == "start finished ");
}

TEST_CASE("events that all ranks have had before they go on in another group are not repeated there") {
  TrainingJob job(job_text);
  Replica replica(job);
  std::string seen;
  StepBackup backup(replica.state, [](std::int64_t) {});
  const auto run = [&](bool changes) {
    Recorder observer(seen, "");
    run_ranks(1, [&](ProcessGroup& group) {
      run_loop(*replica.session(group), observer, &backup, [&] { return changes && replica.state.run.step == 1; });
    });
  };
  run(true);
  CHECK(backup.events_done());
  SECTION("they all have") {
    run(false);
    CHECK(seen == "start 1/6 2/6 start 3/6 epoch 4/6 5/6 6/6 epoch last finished ");
    CHECK_FALSE(backup.events_done());
  }
  SECTION("another rank may not") {
    backup.undo_events();
    run(false);
    CHECK(seen == "start 1/6 2/6 start 2/6 again 3/6 epoch 4/6 5/6 6/6 epoch last finished ");
  }
}

TEST_CASE("in another session the events of the last step come first, and the next step follows") {
  TrainingJob job(job_text);
  Replica replica(job);
  std::string seen;
  std::int64_t applied = 0;
  StepBackup backup(replica.state, [&](std::int64_t step) { applied = step; });
  const auto run = [&](int stop_after) {
    Recorder observer(seen, "", stop_after);
    run_ranks(1, [&](ProcessGroup& group) { run_loop(*replica.session(group), observer, &backup); });
  };
  run(2);
  CHECK(applied == 2);
  auto last = *backup.last();
  last.result.stop_requested = false;
  backup.set_last(last);
  run(0);
  CHECK(seen == "start 1/6 2/6 stops start 2/6 again 3/6 epoch 4/6 5/6 6/6 epoch last finished ");
}

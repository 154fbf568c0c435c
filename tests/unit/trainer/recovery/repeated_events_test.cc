#include <algorithm>
#include <cstdio>
#include <fstream>

#include <boost/json.hpp>

#include "rendezvous/progress/training_memory.h"
#include "worker/trainer/observers/observers.h"
#include "tests/support/catch.h"
#include "tests/support/event_reader.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

const std::string job_text =
    "[model]\nname = linear\n[data]\nname = random\nsamples = 20\ntest_samples = 10\n[train]\nbatch_size = 4\n";

using Words = std::vector<std::string>;

// The records of steps that a job of one rank has written.
struct Written {
  TempDir dir;
  TrainingMemory memory{1};
  std::FILE* const output = std::tmpfile();

  std::string settings() const {
    return job_text + "log_every = 1\n[metrics]\nfile = " + (dir / "metrics").string() +
           "\ntensorboard = " + (dir / "events").string() + "\n";
  }

  // Returns the records as "step 1", "evaluation 1".
  Words metrics() const {
    Words rows;
    std::ifstream file(dir / "metrics");
    for (std::string line; std::getline(file, line);) {
      const auto record = boost::json::parse(line).as_object();
      if (record.contains("step")) rows.push_back("step " + boost::json::serialize(record.at("step")));
      if (record.contains("eval_loss")) rows.push_back("evaluation " + boost::json::serialize(record.at("epoch")));
    }
    return rows;
  }

  // Returns what TensorBoard shows: a session that starts at a step replaces everything from that step on.
  Words tensorboard() const {
    std::vector<std::pair<std::int64_t, std::string>> shown;
    for (const auto& file : files_in(dir / "events"))
      for (const auto& event : events_in(file)) {
        if (event.starts_session) std::erase_if(shown, [&](const auto& each) { return each.first >= event.step; });
        if (event.scalars.contains("train/loss")) shown.emplace_back(event.step, "step");
        if (event.scalars.contains("eval/loss")) shown.emplace_back(event.step, "evaluation");
      }
    Words rows;
    for (const auto& [step, what] : shown) rows.push_back(what + " " + std::to_string(step));
    return rows;
  }

  Words lines() const {
    Words lines;
    std::rewind(output);
    char line[1000];
    while (std::fgets(line, sizeof line, output) != nullptr) lines.emplace_back(std::string_view(line, 8));
    return lines;
  }
};

// The observers of one process.
class Observers {
 public:
  Observers(const TrainConfig& config, Written& written)
      : progress_(written.output, 1),
        all_(make_observers({.config = config,
                             .progress = progress_,
                             .checkpoints = nullptr,
                             .preemption = nullptr,
                             .summary = summary_,
                             .training_record = written.memory.address() + ":0"})) {}

  void start(Session& session) { all_->session_started(session); }
  void step(Session& session, std::int64_t step, bool repeated) {
    session.state().run.step = step;
    StepResult result;
    result.epoch = 1;
    result.samples = 8;
    result.loss = 1.0 / static_cast<double>(step);
    result.times = {.forward = Seconds(1)};
    result.ends_epoch = step == 2;
    all_->step_finished(
        {.session = session, .result = result, .total_steps = 5, .last = false, .stops = false, .repeated = repeated});
  }

 private:
  Progress progress_;
  Summary summary_;
  std::unique_ptr<Observer> all_;
};

}  // namespace

TEST_CASE("the records have a step that is repeated in another group once, as they have its evaluation") {
  const bool replaced = GENERATE(false, true);
  const std::int64_t written_before = GENERATE(1, 2);  // true if the records of the second step were written
  CAPTURE(replaced, written_before);
  Written written;
  TrainingJob job(written.settings());
  Replica replica(job);
  const auto in_session = [&](Observers& observers, std::int64_t position, const std::function<void(Session&)>& body) {
    run_ranks(1, [&](ProcessGroup& group) {
      const auto session = replica.session(group);
      replica.state.run.step = position;
      observers.start(*session);
      body(*session);
    });
  };
  std::optional<Observers> observers(std::in_place, job.config(), written);
  in_session(*observers, 0, [&](Session& session) {
    for (std::int64_t step = 1; step <= written_before; ++step) observers->step(session, step, false);
  });
  if (replaced) observers.emplace(job.config(), written);
  in_session(*observers, 2, [&](Session& session) {
    observers->step(session, 2, true);
    observers->step(session, 3, false);
  });
  CHECK(written.metrics() == Words{"step 1", "step 2", "evaluation 1", "step 3"});
  CHECK(written.tensorboard() == Words{"step 1", "step 2", "evaluation 2", "step 3"});
  const auto lines = written.lines();
  for (const std::string step : {"step 1/5", "step 2/5", "step 3/5"}) CHECK(std::ranges::count(lines, step) <= 1);
  CHECK(std::ranges::count(lines, "step 2/5") == (replaced && written_before == 1 ? 0 : 1));
  const auto record = written.memory.read(0);
  REQUIRE(record);
  CHECK(record->step == 3);
  CHECK(record->steps == (replaced ? 1 : 3));
  CHECK(record->samples == (replaced ? 8 : 24));
}

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
    // Rank 1 is slow; it has joined since and does not have these times.
    if (group.rank() == 0) result.rank_times = {{.forward = Seconds(1)}, {.forward = Seconds(9)}};
    observer->session_started(*session);
    observer->step_finished(
        {.session = *session, .result = result, .total_steps = 5, .last = false, .stops = false, .repeated = true});
    group.barrier({.blocking = true});  // throws where the other rank is in another operation
  });
}

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/atomic_file.h"
#include "common/error.h"
#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/observers/observers.h"
#include "worker/trainer/recovery/state_copy.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/state_snapshot.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using namespace ddprun::trainer;

namespace {

std::string job_text(const TempDir& dir, const std::string& more = "") {
  return "[model]\nname = cnn_bn\n[data]\nname = random\nshape = 1 16 16\nsamples = 64\ntest_samples = 10\n[train]\n"
         "batch_size = 4\nepochs = 2\n[optim]\nname = adam\n[checkpoint]\nevery_steps = 2\nkeep = 100\ndir = " +
         dir.path().string() + "\n" + more;
}

// Stops the writer of checkpoints before its first act until release() is called.
class Gate {
 public:
  std::function<void(std::string_view)> before() {
    return [this, released = released_.get_future().share()](std::string_view) {
      reached_.test_and_set();
      reached_.notify_all();
      released.wait();
    };
  }
  // Waits until a save has come here.
  void await_reached() const { reached_.wait(false); }
  void release() { released_.set_value(); }

 private:
  std::atomic_flag reached_;
  std::promise<void> released_;
};

// Lets the second folder of a checkpoint fail.
class FullDisk {
 public:
  std::function<void(std::string_view)> before() {
    return [this](std::string_view act) {
      if (act != "create the folder" || ++folders_ != 2) return;
      failed_.set_value_at_thread_exit();
      throw Error(Errc::io, "cannot create a file: No space left on device");
    };
  }
  // Waits until the thread of the save that failed ends.
  void wait() { failed_.get_future().wait(); }

 private:
  int folders_ = 0;
  std::promise<void> failed_;
};

// Listens to what a checkpoint's observer tells the others.
class Listener : public Observer {
 public:
  void checkpoint_saved(std::int64_t step, std::chrono::system_clock::time_point) override { saved.push_back(step); }
  std::vector<std::int64_t> saved;
};

// A run of one rank whose steps are told to the observer of its checkpoints.
class SavingRun {
 public:
  SavingRun(const TrainingJob& job, ProcessGroup& group, std::function<void(std::string_view)> before)
      : replica_(job),
        session_(replica_.session(group)),
        checkpoints_({.folder = job.config().checkpoint.dir, .keep = 100, .before = std::move(before)}),
        progress_(nullptr, 0),
        observer_(make_checkpoint_observer({.config = job.config(),
                                            .progress = progress_,
                                            .checkpoints = &checkpoints_,
                                            .preemption = nullptr,
                                            .summary = summary_},
                                           listener_)) {
    observer_->session_started(*session_);
  }

  void step(bool last = false) {
    const auto result = session_->step(false);
    observer_->step_finished({.session = *session_, .result = result, .total_steps = 32, .last = last, .stops = false});
  }
  void first_rank_leaves() { observer_->first_rank_leaves(*session_); }
  // Tells the observer that the evaluation after the next step is the best one so far.
  void evaluate_best() {
    observer_->evaluation_finished(
        {.session = *session_, .evaluation = {}, .epoch = 1, .best = true, .repeated = false});
  }
  TrainState& state() { return replica_.state; }
  const std::vector<std::int64_t>& saved() const { return listener_.saved; }

 private:
  Replica replica_;
  std::unique_ptr<TrainSession> session_;
  checkpoint::Checkpoints checkpoints_;
  Progress progress_;
  Summary summary_;
  Listener listener_;
  std::unique_ptr<Observer> observer_;
};

using Files = std::map<std::string, std::string>;

Files files_in(const std::filesystem::path& folder) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[std::filesystem::relative(entry.path(), folder)] = read_whole_file(entry.path());
  return files;
}

}  // namespace

TEST_CASE("training goes on while a checkpoint is written, and the next checkpoint waits for it") {
  TempDir dir;
  const TrainingJob job(job_text(dir));
  run_ranks(1, [&](ProcessGroup& group) {
    Gate gate;
    SavingRun run(job, group, gate.before());
    for (int i = 0; i < 3; ++i) run.step();  // that of the second step is written meanwhile
    CHECK(run.saved().empty());
    auto files = files_in(dir.path());
    files.erase(".lock");
    CHECK(files.empty());
    gate.release();
    run.step();
    CHECK(run.saved() == std::vector<std::int64_t>{2});
    run.step(true);
    CHECK(run.saved() == std::vector<std::int64_t>{2, 4, 5});
    CHECK(checkpoint::Checkpoints({.folder = dir.path()}).newest()->state.step == 5);
  });
}

TEST_CASE("where rank 0 leaves, no rank goes over to another group before its checkpoint is written") {
  TempDir dir;
  const TrainingJob job(job_text(dir));
  Gate gate;
  std::promise<void> gone_over;
  std::jthread release([&, gone = gone_over.get_future()] {
    gone.wait_for(std::chrono::milliseconds(300));  // so long a rank that does not wait has to show it
    gate.release();
  });
  std::optional<std::int64_t> found;
  run_ranks(2, [&](ProcessGroup& group) {
    SavingRun run(
        job, group, group.rank() == 0 ? gate.before() : [](std::string_view) {});
    for (int i = 0; i < 2; ++i) run.step();
    run.first_rank_leaves();
    if (group.rank() == 0) return;
    if (const auto newest = checkpoint::Checkpoints({.folder = dir.path()}).newest()) found = newest->state.step;
    gone_over.set_value();
  });
  CHECK(found == 2);
}

TEST_CASE("the next rank 0 saves once the one before it has ended its save, of another group") {
  TempDir dir;
  const TrainingJob job(job_text(dir));
  Gate gate;
  run_ranks(1, [&](ProcessGroup& group) {
    SavingRun leaving(job, group, gate.before());
    for (int i = 0; i < 2; ++i) leaving.step();
    gate.await_reached();
    std::promise<void> begun;
    SavingRun next(job, group, [&, is_begun = false](std::string_view) mutable {
      if (!std::exchange(is_begun, true)) begun.set_value();
    });
    for (int i = 0; i < 3; ++i) next.step();  // its training goes on meanwhile
    CHECK(begun.get_future().wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout);
    gate.release();
    leaving.first_rank_leaves();
    CHECK(leaving.saved() == std::vector<std::int64_t>{2});
    next.step(true);
    CHECK(next.saved() == std::vector<std::int64_t>{2, 4});
  });
}

TEST_CASE("a checkpoint that cannot be written ends the run after a later step, and the one before it stays") {
  TempDir dir;
  const TrainingJob job(job_text(dir));
  run_ranks(1, [&](ProcessGroup& group) {
    FullDisk disk;
    SavingRun run(job, group, disk.before());
    for (int i = 0; i < 4; ++i) run.step();
    disk.wait();
    CHECK_THROWS_WITH(run.step(), "cannot create a file: No space left on device");
    CHECK(run.saved() == std::vector<std::int64_t>{2});
    CHECK(checkpoint::Checkpoints({.folder = dir.path()}).newest()->state.step == 2);
  });
}

TEST_CASE("a state that says that it is the best is not the newest before it is among the best") {
  TempDir dir;
  const TrainingJob job(job_text(dir, "keep_best = true\n"));
  run_ranks(1, [&](ProcessGroup& group) {
    FullDisk disk;
    SavingRun run(job, group, disk.before());
    run.step();
    run.evaluate_best();
    run.step();
    disk.wait();
    CHECK_THROWS_WITH(run.step(), "cannot create a file: No space left on device");
    checkpoint::Checkpoints saved({.folder = dir.path()});
    CHECK(saved.best()->state.step == 2);
    CHECK_FALSE(saved.newest());
  });
}

TEST_CASE("checkpoints have the same bytes, written in the background or at once") {
  const std::string form = GENERATE("", "[train]\nema = 0.9\n", "[parallel]\nzero = 1\n", "[parallel]\nzero = 3\n",
                                    "[parallel]\nstrategy = local_sgd\nlocal_sgd_period = 3\n");
  CAPTURE(form);
  const auto files_of = [&](const std::string& background) {
    TempDir dir;
    const std::string more = "background = " + background + "\nkeep_best = true\n[eval]\nevery_epochs = 1\n" + form;
    TrainingJob(job_text(dir, more)).run(2);
    return files_in(dir.path());
  };
  const auto background = files_of("true"), at_once = files_of("false");
  CHECK(background.size() > 32);
  CHECK(background == at_once);
}

TEST_CASE("a snapshot has the buffers of its beginning, and the rest of its end") {
  const bool with_averages = GENERATE(false, true);
  TempDir dir;
  const TrainingJob job(job_text(dir, with_averages ? "[train]\nema = 0.9\n" : ""));
  run_ranks(1, [&](ProcessGroup& group) {
    Replica replica(job);
    const auto session = replica.session(group);
    session->step(false);
    const auto fill = [&](double value) {
      auto all = tensors_of(replica.state);
      for (auto* tensors : {&all.model, &all.optimizer, &all.averages})
        for (auto& [name, tensor] : *tensors) tensor.fill(value);
    };
    fill(1);
    const auto whole = session->gather_state();
    REQUIRE(whole.stays);
    checkpoint::CopyMemory memory;
    const auto snapshot = snapshot_of(content_of(whole, replica.state.run), replica.state, memory);
    fill(2);
    snapshot->copy_rest();
    snapshot->wait();
    fill(3);
    const auto& content = snapshot->content();
    CHECK(content.ema.empty() != with_averages);
    std::set<std::string> buffers;
    for (const auto& [name, buffer] : replica.state.model->named_buffers()) buffers.insert(name);
    REQUIRE(buffers.contains("bn1.running_mean"));
    for (const auto* file : {&content.model, &content.optimizer, &content.ema})
      for (const auto& tensor : *file) {
        CAPTURE(tensor.name);
        const auto expected = buffers.contains(tensor.name) ? 1 : 2;
        if (tensor.dtype == DType::float32)
          CHECK(*reinterpret_cast<const float*>(tensor.bytes.data()) == static_cast<float>(expected));
        else
          CHECK(*reinterpret_cast<const std::int64_t*>(tensor.bytes.data()) == expected);
      }
  });
}

TEST_CASE("readers of the state are awaited before it changes, and not before") {
  const std::string form = GENERATE("", "[train]\nema = 0.9\n");
  CAPTURE(form);
  TempDir dir;
  const TrainingJob job(job_text(dir, form));
  run_ranks(1, [&](ProcessGroup& group) {
    Replica replica(job);
    const auto session = replica.session(group);
    const auto digest = [&] { return parameter_digest(*replica.state.model); };
    std::vector<std::string> awaited;
    replica.state.await_readers = [&] { awaited.push_back(digest()); };
    const auto before = digest();
    session->step(false);
    CHECK(awaited == std::vector<std::string>{before});
    CHECK(digest() != before);
    session->evaluate();  // of the averages, in the place of the parameters
    REQUIRE(awaited.size() == (form.empty() ? 1 : 2));
    if (!form.empty()) CHECK(awaited.back() == digest());
  });
}

TEST_CASE("readers of the state are awaited before it is replaced by that of another rank") {
  TempDir dir;
  const TrainingJob job(job_text(dir));
  run_ranks(2, [&](ProcessGroup& group) {
    Replica replica(job);
    replica.state.optimizer->set_lr(0.1);
    for (const auto& [name, parameter] : replica.state.model->named_parameters())
      Tensor(parameter.value()).fill(group.rank() + 1.0);
    const auto before = parameter_digest(*replica.state.model);
    std::string awaited;
    replica.state.await_readers = [&] { awaited = parameter_digest(*replica.state.model); };
    StepBackup backup(replica.state, [](std::int64_t) {});
    copy_state(replica.state, backup, group, {.source = 0, .lagging = {1}});
    if (awaited != before) throw std::runtime_error("the state changed before its readers were awaited");
    if (group.rank() == 1 && parameter_digest(*replica.state.model) == before) throw std::runtime_error("no copy");
  });
}

TEST_CASE("no time limit of the disk is rounded to none") {
  TrainConfig::Checkpoint config;
  const auto timeout_of = [&](double seconds) {
    config.timeout = seconds;
    return disk_timeout(config);
  };
  CHECK(timeout_of(0).count() == 0);
  CHECK(timeout_of(1e-5).count() == 1);
  CHECK(timeout_of(600) == std::chrono::minutes(10));
}

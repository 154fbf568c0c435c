#include <csignal>
#include <random>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"
#include "tests/support/event_reader.h"

// A job that loses a worker continues in the other workers' processes, and ends with the same bits.
using namespace ddprun::testing;

namespace {

Words job_of(const Training& training, const Words& launch, const Words& more = {}) {
  Words all{"--standalone", "--nproc_per_node=4"};
  all.insert(all.end(), launch.begin(), launch.end());
  return training.job(all, recorded(training, more));
}

std::string undisturbed_digest(const Words& more = {}) {
  const Training training;
  const auto result = Child(job_of(training, {}, more)).wait(bound);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(recorded_steps(training) == first_steps(80));
  return parameters_of(result.out + result.err);
}

std::size_t descriptors_of(pid_t pid) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
    ++count;
  return count;
}

// Returns the steps that TensorBoard shows: where a file begins a session, it drops those of files before from there
// on.
std::vector<std::int64_t> shown_steps(const std::filesystem::path& folder) {
  std::map<double, std::vector<Event>> files;  // by the time of their first event
  for (const auto& file : files_in(folder)) {
    auto events = events_in(file);
    REQUIRE_FALSE(events.empty());
    files[events.front().wall_time] = std::move(events);
  }
  std::vector<std::int64_t> steps;
  for (const auto& [time, events] : files)
    for (const Event& event : events) {
      if (event.starts_session) std::erase_if(steps, [&](const auto step) { return step >= event.step; });
      if (event.scalars.contains("train/loss")) steps.push_back(event.step);
    }
  return steps;
}

}  // namespace

TEST_CASE("SIGKILL of any rank: the others go on in their processes, with the same bits and each step once") {
  const std::string backend = GENERATE("shm", "gloo");
  const int rank = GENERATE(0, 2);
  CAPTURE(backend, rank);
  const Words overrides{"--dist.backend=" + backend, "--train.log_every=1"};
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);

  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=1"}, overrides), training.marker.variables());
    wait_for_step(child, training, 20);
    replace(child, training, rank);
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out + result.err) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
    CHECK(occurrences(result.err, "restart 1 of 1: a replacement for this rank alone") == 1);
    CHECK(occurrences(result.err, "new round") == 0);
    for (int step = 1; step <= 80; ++step) {
      const auto lines = occurrences(result.out, "step " + std::to_string(step) + "/80");
      CHECK(lines <= 1);
      if (rank != 0) CHECK(lines == 1);
    }
    CHECK(training.marker.processes() == 0);
  });
}

TEST_CASE("all ranks that have the state die: one line says that the job goes on from the checkpoint, by one restart") {
  const auto expected = undisturbed_digest();
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=8"}), training.marker.variables());
    wait_for_step(child, training, 20);
    const auto before = all_workers(child, training);
    ::kill(before.at(3), SIGSTOP);  // it gives its state to nobody
    for (const int rank : {0, 1, 2}) ::kill(before.at(rank), SIGKILL);
    wait_for_replacements(child, training, before, {0, 1, 2});
    ::kill(before.at(3), SIGKILL);
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out + result.err) == expected);
    CHECK(occurrences(result.err, "a replacement for this rank alone") == 4);
    CHECK(occurrences(result.err, "[ddprun] warning: new round: ") == 1);
    CHECK(occurrences(result.err, "all ranks that had the state of the training are lost; restart 5 of 8") == 1);
    CHECK(training.marker.processes() == 0);
  });
}

TEST_CASE("all that a step changes is as before it when it is made again") {
  const Words overrides{
      "--model.name=cnn_bn",

      "--train.ema=0.9",          "--train.precision=fp16",      "--optim.skip_outliers=5",
      "--optim.schedule=plateau", "--checkpoint.keep_best=true", "--train.loss_scale_growth_interval=3"};
  const auto expected = undisturbed_digest(overrides);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=3"}, overrides), training.marker.variables());
    for (const int rank : {1, 0, 3}) {
      wait_for_step(child, training, 10 + static_cast<std::int64_t>(recorded_steps(training).size()));
      replace(child, training, rank);
    }
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out + result.err) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
  });
}

// The bits depend on what the lost rank had not sent, or on the speed of ranks. That all end with the same ones is
// checked by the workers.
TEST_CASE("with a hook that keeps an error, or with shares by speed, the others go on in their processes") {
  auto overrides = GENERATE(Words{"--parallel.hook=topk"}, Words{"--parallel.hook=int4"},
                            Words{"--parallel.hook=powersgd", "--parallel.start_powerSGD_iter=5"},
                            Words{"--parallel.hook=onebit", "--parallel.freeze_step=5", "--optim.name=adam"},
                            Words{"--parallel.balance=true"});
  CAPTURE(overrides);
  const bool has_hook = overrides.front().find("hook") != std::string::npos;
  overrides.emplace_back("--recovery.mode=in_process");
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=2"}, overrides), training.marker.variables());
    for (const int rank : {2, 0}) {
      wait_for_step(child, training, 10 + static_cast<std::int64_t>(recorded_steps(training).size()));
      replace(child, training, rank);
    }
    const auto result = child.wait(bound);
    INFO(result.out + result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out + result.err).size() == 64);
    CHECK(recorded_steps(training) == first_steps(80));
    CHECK(occurrences(result.err, "a replacement for this rank alone") == 2);
    CHECK(occurrences(result.err, "new round") == 0);
    CHECK(occurrences(result.out + result.err, "the rank begins with the mean of the others") == (has_hook ? 2 : 0));
  });
}

TEST_CASE("twenty kills of random ranks in one job: the same bits, no descriptor is left open") {
  constexpr std::size_t passing = 4;          // connections to the store that are dialled ahead, or about to be closed
  const Words longer{"--data.samples=8000"};  // 400 steps
  const auto expected = [&] {
    const Training training;
    return parameters_of(Child(job_of(training, {}, longer)).wait(bound).out);
  }();
  REQUIRE(expected.size() == 64);
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=20"}, longer), training.marker.variables());
    wait_for_step(child, training, 5);
    std::size_t descriptors = 0;
    for (int kills = 0; kills < 20; ++kills) {
      CAPTURE(kills);
      replace(child, training, static_cast<int>(random() % 3));  // rank 3 stays
      wait_for_step(child, training, recorded_steps(training).back() + 5);
      const auto now = descriptors_of(workers_by_rank(training).at(3));
      if (kills == 0) descriptors = now;
      CHECK(now <= descriptors + passing);
    }
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out) == expected);
    CHECK(recorded_steps(training) == first_steps(400));
    CHECK(training.marker.processes() == 0);
  });
}

TEST_CASE("two ranks that die at once are both replaced") {
  const auto expected = undisturbed_digest();
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=2"}), training.marker.variables());
    wait_for_step(child, training, 20);
    const auto before = all_workers(child, training);
    ::kill(before.at(0), SIGKILL);
    ::kill(before.at(3), SIGKILL);
    const auto now = wait_for_replacements(child, training, before, {0, 3});
    CHECK(now.at(1) == before.at(1));
    CHECK(now.at(2) == before.at(2));
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
  });
}

TEST_CASE("replacements that are killed as soon as they start are replaced in turn") {
  const auto expected = undisturbed_digest();
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=4"}), training.marker.variables());
    wait_for_step(child, training, 20);
    for (int kills = 0; kills < 4; ++kills) replace(child, training, 2);
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
    for (const auto* each : {"restart 1 of 4", "restart 2 of 4", "restart 3 of 4", "restart 4 of 4"})
      CHECK(occurrences(result.err, each + std::string(": a replacement for this rank alone")) == 1);
    CHECK(training.marker.processes() == 0);
  });
}

TEST_CASE("a replacement that is killed as soon as it starts uses the budget, and its end is the job's") {
  const Training training;
  Child child(job_of(training, {"--max_restarts=2"}, {"--train.epochs=1000"}), training.marker.variables());
  wait_for_step(child, training, 5);
  for (int kills = 0; kills < 2; ++kills) replace(child, training, 3);
  REQUIRE(::kill(workers_by_rank(training).at(3), SIGKILL) == 0);
  const auto result = child.wait(bound);
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(occurrences(result.err, "all 2 restarts used") == 1);
  CHECK(training.marker.processes() == 0);
}

TEST_CASE("a kill with no restart left ends the job with the signal's exit code") {
  const Training training;
  Child child(job_of(training, {"--max_restarts=1"}, {"--train.epochs=1000"}), training.marker.variables());
  wait_for_step(child, training, 5);
  replace(child, training, 1);
  wait_for_step(child, training, recorded_steps(training).back() + 5);
  REQUIRE(::kill(workers_by_rank(training).at(2), SIGKILL) == 0);
  const auto result = child.wait(bound);
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(occurrences(result.err, "[ddprun] error: rank 2 (local rank 2") == 1);
  CHECK(occurrences(result.err, "the one restart is used") == 1);
  CHECK(training.marker.processes() == 0);
}

TEST_CASE("recovery.mode = restart and --restart=all restart every worker") {
  const bool by_option = GENERATE(true, false);
  CAPTURE(by_option);
  in_time([&] {
    const Training training;
    Words launch{"--max_restarts=1"};
    if (by_option) launch.emplace_back("--restart=all");
    Child child(job_of(training, launch, by_option ? Words{} : Words{"--recovery.mode=restart"}),
                training.marker.variables());
    wait_for_step(child, training, 20);
    const auto before = all_workers(child, training);
    ::kill(before.at(1), SIGKILL);
    wait_for_replacements(child, training, before, {0, 2});
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(occurrences(result.err, "new round") == 1);
  });
}

TEST_CASE("with --restart=failed the job ends where the workers have not announced that they can recover") {
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=1", "--restart=failed"}, {"--recovery.mode=restart"}),
                training.marker.variables());
    wait_for_step(child, training, 5);
    ::kill(workers_by_rank(training).at(1), SIGKILL);
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK(occurrences(result.err, "rank 0 has not announced that it can recover (--restart=failed)") == 1);
    CHECK(training.marker.processes() == 0);
  });
}

TEST_CASE("a frozen rank is ended and replaced, and the others go on in their processes, with the same bits") {
  const std::string backend = GENERATE("shm", "gloo");
  const int rank = GENERATE(0, 2);
  CAPTURE(backend, rank);
  const Words overrides{"--dist.backend=" + backend};
  const auto expected = undisturbed_digest(overrides);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=1"}, overrides), training.marker.variables());
    wait_for_step(child, training, 20);
    replace(child, training, rank, SIGSTOP);
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out + result.err) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
    const auto name = "rank " + std::to_string(rank);
    CHECK_THAT(result.err,
               Catch::Contains(name + " (local rank " + std::to_string(rank) + ", pid ") &&
                   Catch::Contains(" failed: " + name + " (pid ") && Catch::Contains(" sent no heartbeat for ") &&
                   Catch::Contains(": its process is stopped; ") &&
                   Catch::Contains("; ddprun sent it SIGKILL; restart 1 of 1: a replacement for this rank alone"));
    CHECK(occurrences(result.err, "new round") == 0);
    CHECK(training.marker.processes() == 0);
  });
}

TEST_CASE("a rank that freezes as another one dies is replaced as well, once the others have waited for it") {
  const auto expected = undisturbed_digest();
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=2"}, {"--recovery.wait=2"}), training.marker.variables());
    wait_for_step(child, training, 20);
    const auto before = all_workers(child, training);
    ::kill(before.at(2), SIGSTOP);
    ::kill(before.at(1), SIGKILL);
    wait_for_replacements(child, training, before, {1, 2});
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(parameters_of(result.out + result.err) == expected);
    CHECK(recorded_steps(training) == first_steps(80));
    CHECK(occurrences(result.err, "a replacement for this rank alone") == 2);
    CHECK(occurrences(result.err, "new round") == 0);
  });
}

TEST_CASE("TensorBoard shows each step once after rank 0, which writes its file, was lost twice") {
  in_time([&] {
    const Training training;
    const auto folder = training.folder / "events";
    Child child(job_of(training, {"--max_restarts=2"}, {"--metrics.tensorboard=" + folder.string()}),
                training.marker.variables());
    for (const std::int64_t step : {15, 40}) {
      wait_for_step(child, training, step);
      replace(child, training, 0);
    }
    const auto result = child.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(files_in(folder).size() >= 3);
    CHECK(shown_steps(folder) == first_steps(80));
  });
}

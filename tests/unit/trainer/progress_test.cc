#include "worker/trainer/report/progress.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/atomic_file.h"
#include "common/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

namespace {

const ProgressState half{.step = 50,
                         .total_steps = 100,
                         .epoch = 2,
                         .epochs = 4,
                         .loss = 0.12345,
                         .samples_per_s = 12345.6,
                         .left = std::chrono::seconds(65)};

}  // namespace

TEST_CASE("durations read well at every size") {
  using std::chrono::duration;
  CHECK(duration_text(duration<double>(-1)) == "0 s");
  CHECK(duration_text(duration<double>(3.4)) == "3 s");
  CHECK(duration_text(duration<double>(59.6)) == "1 min 00 s");
  CHECK(duration_text(duration<double>(3599)) == "59 min 59 s");
  CHECK(duration_text(duration<double>(3840)) == "1 h 04 min");
}

TEST_CASE("the bar shows how far, how well, how fast and how long yet, and fits the terminal") {
  CHECK(progress_line(half) == "step 50/100, epoch 2/4, loss 0.1235, 12346 samples/s, 1 min 05 s left");
  auto scaled = half;
  scaled.loss_scale = 65536;
  scaled.skipped_steps = 2;
  CHECK_THAT(progress_line(scaled), Catch::Contains("loss 0.1235, loss scale 65536, 2 skipped, 12346 samples/s"));
  auto shared = half;
  shared.shares = TimeShares{.data = 0.02, .compute = 0.9, .communication = 0.08};
  CHECK_THAT(progress_line(shared),
             Catch::Contains("12346 samples/s (data 2 %, compute 90 %, communication 8 %), 1 min 05 s left"));
  const std::string text = "step  50/100, epoch 2/4, loss 0.1235, 12346 samples/s, 1 min 05 s left";
  CHECK(progress_bar(half, 100) == "[============>            ] " + text);
  CHECK(progress_bar(half, 69) == "[==>  ]  50/100, epoch 2/4, loss 0.1235, 12346/s, 1 min 05 s left");
  CHECK(progress_bar(half, 50) == "[=====>    ]  50/100, loss 0.1235, 1 min 05 s left");
  CHECK(progress_bar(half, 40) == " 50/100, loss 0.1235, 1 min 05 s left");
  CHECK(progress_bar(half, 9) == " 50/100, ");
  auto end = half;
  end.step = 100;
  CHECK(progress_bar(end, 100).starts_with("[=========================] step 100/100"));
  CHECK(progress_bar(half, 0).empty());
  for (int width = 1; width < 120; ++width) CHECK(progress_bar(half, width).size() <= static_cast<std::size_t>(width));
}

TEST_CASE("an evaluation within an epoch has its step") {
  CHECK(evaluation_line(1, 2, 500, {.loss = 0.5}) == "epoch 1/2, step 500: test loss 0.5000");
}

TEST_CASE("an evaluation has its accuracy where there are classes") {
  CHECK(evaluation_line(1, 2, 0, {.loss = 0.5, .accuracy = 0.97654}) ==
        "epoch 1/2: test loss 0.5000, accuracy 97.65 %");
  CHECK(evaluation_line(1, 2, 0, {.loss = 0.5}) == "epoch 1/2: test loss 0.5000");
  CHECK(evaluation_line(1, 2, 0, {.loss = 0.5, .others = {{"perplexity", 1.6487}}}) ==
        "epoch 1/2: test loss 0.5000, perplexity 1.6487");
}

TEST_CASE("where there is no terminal, one line each log_every steps") {
  TempDir dir;
  const auto printed = [&](std::int64_t log_every) {
    std::FILE* file = std::fopen((dir / "out").c_str(), "w");
    {
      Progress progress(file, log_every);
      for (std::int64_t step = 1; step <= 100; ++step) {
        auto state = half;
        state.step = step;
        progress.step(state);
      }
      progress.line("end");
    }
    std::fclose(file);
    return read_whole_file(dir / "out");
  };
  CHECK(printed(0) == "end\n");
  const auto twice = printed(50);
  CHECK(twice.starts_with("step 50/100, "));
  CHECK(std::count(twice.begin(), twice.end(), '\n') == 3);
}

TEST_CASE("a rank without a file is silent") {
  TempDir dir;
  const auto path = dir / "out";
  {
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    std::fflush(stdout);
    const UniqueFd saved(::dup(STDOUT_FILENO));
    REQUIRE(::dup2(file.get(), STDOUT_FILENO) == STDOUT_FILENO);
    {
      Progress progress(nullptr, 1);
      progress.step(half);
      progress.line("nobody reads this");
      CHECK(progress.error() == 0);
    }
    std::fflush(stdout);
    REQUIRE(::dup2(saved.get(), STDOUT_FILENO) == STDOUT_FILENO);
  }
  CHECK(read_whole_file(path).empty());
}

TEST_CASE("a file that cannot be written is remembered, and training goes on") {
  std::FILE* full = std::fopen("/dev/full", "w");
  {
    Progress progress(full, 1);
    progress.step(half);
    CHECK(progress.error() == ENOSPC);
    progress.line("end");
    CHECK(progress.error() == ENOSPC);
  }
  std::fclose(full);
}

TEST_CASE("steps are counted by the staleness of their gradient") {
  CHECK(staleness_line(std::vector<std::int64_t>{90, 0, 10}) ==
        "steps by the staleness of their gradient: 0: 90, 2: 10");
}

TEST_CASE("a line is due when the steps since the last one pass a multiple of log_every") {
  Progress progress(std::tmpfile(), 50);
  CHECK_FALSE(progress.step({.step = 30, .steps = 30}));
  CHECK(progress.step({.step = 60, .steps = 30}));
  CHECK_FALSE(progress.step({.step = 90, .steps = 30}));
  CHECK(progress.step({.step = 100, .steps = 10}));
}

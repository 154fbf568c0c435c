#include <cmath>

#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::string digits =
    "[data]\nname = digits\nsamples = 6400\ntest_samples = 400\n[model]\nname = mlp\nhidden = 32\n";

std::string local_sgd(int steps, const std::string& more = {}, int period = 4) {
  return digits + "[train]\nbatch_size = 32\nmax_steps = " + std::to_string(steps) +
         "\n[parallel]\nstrategy = local_sgd\nlocal_sgd_period = " + std::to_string(period) + "\n" + more;
}

trainer::Summary run(int ranks, const std::string& text) {
  return TrainingJob(text).run(ranks)[0];
}

}  // namespace

TEST_CASE("a job by local SGD goes on from a checkpoint between two averages with the bits of one undisturbed") {
  for (const char* optimizer :
       {"[optim]\nname = adam\n", "[optim]\nname = sgd\nlr = 0.02\nmomentum = 0.9\n",
        "[optim]\nskip_outliers = 1.2\n[train]\nprecision = fp16\nloss_scale = 1e6\nema = 0.9\n"}) {
    TempDir dir;
    const std::string saved = "[checkpoint]\ndir = " + dir.path().string() + "\nevery_steps = 3\n";
    const auto whole = run(3, local_sgd(11, optimizer));
    run(3, local_sgd(6, optimizer + saved));
    CHECK(run(3, local_sgd(11, optimizer + saved)).parameter_digest == whole.parameter_digest);
  }
}

TEST_CASE("streaming DiLoCo goes on from a checkpoint with an average under way with the bits of one undisturbed") {
  const std::string outer =
      "outer_lr = 0.7\nouter_momentum = 0.9\nfragments = 2\nfragment_sync_delay = 1\nfragment_update_alpha = 0.5\n";
  TempDir dir;
  const std::string saved = "[checkpoint]\ndir = " + dir.path().string() + "\nevery_steps = 3\n";
  const auto whole = run(3, local_sgd(13, outer));
  run(3, local_sgd(6, outer + saved));  // the average that began after step 6 is used after step 7
  CHECK(run(3, local_sgd(13, outer + saved)).parameter_digest == whole.parameter_digest);
  CHECK(run(2, local_sgd(20, outer + saved)).steps == 20);
}

TEST_CASE("a job by local SGD goes on with other numbers of ranks, and from and to one that averages gradients") {
  TempDir dir;
  const std::string saved = "[checkpoint]\ndir = " + dir.path().string() + "\n";
  CHECK(run(3, local_sgd(6, saved)).steps == 6);
  CHECK(run(2, local_sgd(10, saved)).steps == 10);
  const auto average = run(2, local_sgd(10, saved));  // the average of the saved parameters, without a step
  const std::string ddp = digits + "[train]\nbatch_size = 32\nmax_steps = ";
  CHECK(run(1, ddp + "10\n" + saved).parameter_digest == average.parameter_digest);
  CHECK(run(1, ddp + "12\n" + saved).steps == 12);
  CHECK(run(2, local_sgd(18, saved)).steps == 18);
}

TEST_CASE("a period of one step is the average of the gradients, as far as the optimizer is linear") {
  const std::string sgd = "[optim]\nname = sgd\nlr = 0.05\n";
  TempDir dir;
  const auto losses = [&](const std::string& text) {
    run(2, text + "[metrics]\nfile = " + (dir / "m").string() + "\n");
    return losses_in(dir / "m");
  };
  const auto averaged = losses(digits + "[train]\nbatch_size = 32\nmax_steps = 20\n" + sgd);
  const auto local = losses(local_sgd(20, sgd, 1));
  REQUIRE(local.size() == 20);
  for (std::size_t i = 0; i < local.size(); ++i) CHECK(std::abs(local[i] - averaged[i]) <= 1e-5 * averaged[i]);
}

TEST_CASE("local SGD refuses what refers to averaged gradients") {
  for (const char* each : {"fragments = 5\n", "fragment_sync_delay = 4\n", "fragment_update_alpha = 0.5\n",
                           "hook = fp16\n", "zero = 1\n", "sync_batch_norm = true\n"})
    CHECK_THROWS_WITH(TrainingJob("[model]\nname = cnn_bn\n[parallel]\nstrategy = local_sgd\n" + std::string(each)),
                      Catch::Contains("local_sgd") || Catch::Contains("fragment_sync_delay"));
}

#include <numeric>

#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The job uses what a worker does before the update and what a server does in it.
std::string job(int steps, const std::string& more = {}) {
  return "[data]\nname = digits\nsamples = 410\ntest_samples = 100\n[model]\nname = mlp\nhidden = 32\ndropout = 0.1\n"
         "[train]\nepochs = 10\nbatch_size = 32\naccumulate = 2\nmax_steps = " +
         std::to_string(steps) +
         "\n[optim]\nname = adam\nschedule = cosine\nclip_norm = 0.5\nweight_decay = 0.01\n"
         "decay_one_dimensional = false\n" +
         more;
}

std::string servers(int count, int staleness, int round) {
  return "[parallel]\nstrategy = parameter_server\nservers = " + std::to_string(count) +
         "\nstaleness = " + std::to_string(staleness) + "\nround = " + std::to_string(round) + "\n";
}

std::string saved_in(const TempDir& dir, const std::string& more = {}) {
  return "[checkpoint]\ndir = " + dir.path().string() + "\n" + more;
}

trainer::Summary run(int ranks, const std::string& text) {
  return TrainingJob(text).run(ranks)[0];
}

}  // namespace

TEST_CASE("a job with servers of parameters has one process's bits with one worker, or without staleness") {
  const auto alone = run(1, job(30));
  const auto same = [&](int ranks, const std::string& parallel) {
    INFO(ranks << " ranks\n" << parallel);
    const auto found = run(ranks, job(30, parallel));
    CHECK(found.steps == 30);
    CHECK(found.parameter_digest == alone.parameter_digest);
    CHECK(found.evaluation.loss == Approx(alone.evaluation.loss).epsilon(1e-6));
  };
  same(2, servers(1, 16, 7));
  same(4, servers(3, 16, 100));
  same(3, servers(1, 0, 100));
  same(5, servers(2, 0, 4));
}

TEST_CASE("a job with servers of parameters goes on from a checkpoint with its bits, also with other numbers of them") {
  const auto whole = run(1, job(23, "schedule_length = 23\n"));
  TempDir dir;
  const std::string saved = "schedule_length = 23\n" + saved_in(dir, "every_steps = 4\n");
  CHECK(run(3, job(6, saved + servers(1, 0, 5))).steps == 6);
  CHECK(run(4, job(14, saved + servers(2, 0, 5))).steps == 14);
  CHECK(run(1, job(16, saved)).steps == 16);
  CHECK(run(2, job(23, saved + servers(1, 3, 5))).parameter_digest == whole.parameter_digest);
}

TEST_CASE("the records of a job with servers of parameters count its steps by staleness") {
  TempDir dir;
  const auto text = job(40, "[metrics]\nfile = " + (dir / "m").string() + "\n[train]\ncheck_replicas = true\n");
  CHECK(run(4, text + servers(1, 1, 9)).steps == 40);
  std::istringstream lines(read_whole_file(dir / "m"));
  std::vector<std::int64_t> steps;
  std::int64_t counted = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto record = boost::json::parse(line).as_object();
    if (!record.contains("step")) continue;
    steps.push_back(record.at("step").as_int64());
    CHECK(record.at("staleness").as_array().size() == 2);  // not above the bound
    for (const auto& count : record.at("staleness").as_array()) counted += count.to_number<std::int64_t>();
    CHECK(counted == steps.back());
  }
  CHECK(steps == std::vector<std::int64_t>{7, 9, 14, 18, 21, 27, 28, 35, 36, 40});  // rounds of 9, epochs of 7
}

TEST_CASE(
    "a model that is trained to be quantized learns with servers of parameters, with the ranges of the first worker") {
  const auto alone = run(1, job(30, "[train]\nquantization_aware = true\n"));
  const auto divided = run(4, job(30, "[train]\nquantization_aware = true\n" + servers(1, 2, 5)));
  CHECK(divided.evaluation.loss < 1.3 * alone.evaluation.loss);
}

TEST_CASE("servers of parameters refuse what they have no form of, and a job without a worker") {
  for (const char* each : {"hook = fp16\n", "zero = 1\n", "tensor = 2\n", "balance = true\n",
                           "sync_batch_norm = true\n", "devices = cpu:0 cpu:1\n", "[train]\nprecision = fp16\n",
                           "[train]\nema = 0.9\n", "[optim]\nskip_outliers = 3\n", "[optim]\nname = lamb\n"})
    CHECK_THROWS_WITH(
        TrainingJob("[model]\nname = cnn_bn\n[parallel]\nstrategy = parameter_server\n" + std::string(each)),
        Catch::Contains("parallel.strategy = parameter_server"));
  CHECK_THROWS_WITH(run(2, job(5, servers(2, 0, 5))),
                    Catch::Contains("parallel.servers = 2 leaves no worker: there are 2 ranks"));
}

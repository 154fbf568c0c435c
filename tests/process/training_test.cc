// The main job and similar jobs, run by ddprun with real workers.
#include <fstream>
#include <random>
#include <regex>

#include "tests/process/worker.h"
#include "tests/support/free_port.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

std::int64_t last_step(const std::filesystem::path& metrics) {
  std::ifstream file(metrics);
  std::int64_t steps = 0;
  for (std::string line; std::getline(file, line);) steps += line.starts_with("{\"step\"");
  return steps;
}

// Returns a short job on the digits with checkpoints, and its number of steps: 2,000 samples, 16 steps per epoch.
Words short_job(const TempDir& dir) {
  return {"--data.name=digits",
          "--data.samples=2000",
          "--data.test_samples=500",
          "--train.epochs=6",
          "--train.log_every=0",
          "--checkpoint.every_steps=7",
          "--checkpoint.dir=" + (dir / "checkpoints").string(),
          "--metrics.file=" + (dir / "metrics").string()};
}
constexpr std::int64_t short_job_steps = 96;

}  // namespace

TEST_CASE("two runs of the main job have the same bits on every rank") {
  const Words arguments{"--data.name=digits", "--data.samples=2000", "--train.epochs=2", "--train.check_replicas=true"};
  const auto first = run_job(two_ranks(arguments));
  CHECK(digest_of(first) == digest_of(run_job(two_ranks(arguments))));
  CHECK_THAT(first.out, Catch::Contains("done: 32 steps"));
}

TEST_CASE("a job whose optimizer keeps its state in files has the bits of one that keeps it in memory") {
  TempDir folder, checkpoints;
  Words arguments{"--data.name=digits", "--data.samples=2000", "--train.epochs=2", "--parallel.zero=1"};
  const auto whole = digest_of(run_job(two_ranks(arguments)));
  arguments.push_back("--optim.offload=" + folder.path().string());
  CHECK(digest_of(run_job(two_ranks(arguments))) == whole);
  arguments.push_back("--checkpoint.dir=" + checkpoints.path().string());
  auto half = arguments;
  half.push_back("--train.max_steps=10");
  run_job(two_ranks(half));
  CHECK(digest_of(run_job(two_ranks(arguments))) == whole);
  CHECK(std::filesystem::is_empty(folder.path()));

  const auto refused =
      run_worker({config("mnist.cfg"), "--data.name=digits", "--optim.offload=" + (folder / "missing").string()});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Catch::Contains("cannot create a file in " + (folder / "missing").string()));
}

TEST_CASE("worker 0 may serve the store at a port that the agent has reserved for it") {
  const Words arguments{"--data.name=digits", "--data.samples=2000", "--train.epochs=2"};
  CHECK(digest_of(run_job(two_ranks(arguments, {"--no_agent_store"}))) == digest_of(run_job(two_ranks(arguments))));
}

TEST_CASE("local SGD sends as much less as there are steps between two averages") {
  const auto bytes = [](const Words& more) {
    TempDir dir;
    Words words{"--data.name=digits",      "--data.samples=2560",
                "--data.test_samples=100", "--train.batch_size=32",
                "--model.name=mlp",        "--dist.backend=gloo",
                "--train.max_steps=40",    "--metrics.file=" + (dir / "metrics").string()};
    words.insert(words.end(), more.begin(), more.end());
    digest_of(run_job(two_ranks(words)));
    std::ifstream file(dir / "metrics");
    double sum = 0;
    std::smatch match;
    for (std::string line; std::getline(file, line);)
      if (std::regex_search(line, match, std::regex("\"bytes_sent\": ([0-9]+)"))) sum += std::stod(match[1]);
    return sum;
  };
  const double averaged = bytes({});
  const double local = bytes({"--parallel.strategy=local_sgd", "--parallel.local_sgd_period=20"});
  CHECK(averaged > 40 * 4 * 100'000);  // for more than 100,000 parameters
  CHECK(local == Approx(averaged / 20).epsilon(0.02));
}

TEST_CASE("ranks that are started without ddprun form a group") {
  TempDir dir;
  const std::map<std::string, std::string> common{{"WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", std::to_string(free_port())},
                                                  {"OMP_NUM_THREADS", "1"}};
  auto first = common;
  auto second = common;
  first["RANK"] = "0";
  second["RANK"] = "1";
  const Words words{DDPRUN_WORKER, config("linear.cfg")};
  Child one(words, second);
  Child zero(words, first);
  const auto result = zero.wait();
  CHECK(one.wait().code == 0);
  CHECK(one.out().empty());
  CHECK_THAT(result.out, Catch::Contains("done: 395 steps"));
  digest_of(result);
}

// The time of the kill is random; the seed is printed on failure.
TEST_CASE("after a killed worker and a restart the result has the same bits") {
  TempDir uninterrupted;
  const auto expected = digest_of(run_job(two_ranks(short_job(uninterrupted))));
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto value = Environment::capture().get("DDPRUN_TEST_KILLS");
  const int kills = value ? std::stoi(*value) : 4;
  for (int i = 0; i < kills; ++i) {
    TempDir dir;
    const auto at_step = static_cast<std::int64_t>(random() % (short_job_steps - 1));
    const auto victim = random() % 2;
    INFO("seed " << seed << ", kill " << i << ": worker " << victim << " from step " << at_step);
    Child job(two_ranks(short_job(dir), {"--max_restarts=1"}), one_thread);
    job.wait_until([&] { return last_step(dir / "metrics") >= at_step; }, "step " + std::to_string(at_step));
    const auto workers = ranks_of(dir.path().string());
    if (workers.size() == 2) ::kill(workers[victim], SIGKILL);  // fewer: the job has already ended
    auto result = job.wait(std::chrono::seconds(60));
    result.out = without_prefixes(result.out);
    CHECK(digest_of(result) == expected);
    CHECK(last_step(dir / "metrics") == short_job_steps);
  }
}

TEST_CASE("ranks train over ::1 where the host has no other loopback address") {
  const std::string backend = GENERATE("auto", "gloo");
  CAPTURE(backend);
  const Words in_namespace{"/usr/bin/unshare",
                           "--net",
                           "/bin/sh",
                           "-c",
                           "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec \"$@\"",
                           "sh"};
  Words probe = in_namespace, job = in_namespace;
  probe.emplace_back("/bin/true");
  if (Child(probe).wait().code != 0) SKIP("this machine does not permit network namespaces");
  for (const auto& word : {std::string(DDPRUN_PROGRAM), std::string("--standalone"), std::string("--nproc_per_node=2"),
                           config("linear.cfg").string(), "--dist.backend=" + backend})
    job.push_back(word);
  digest_of(run_job(job));
}

TEST_CASE("the limit of open files that ddprun asks for is enough for workers that train") {
  const Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=4", config("linear.cfg"), "--train.max_steps=2"};
  const auto with_limit = [&](const std::string& limit) {
    Words limited{"/bin/sh", "-c", "ulimit -n " + limit + " && exec \"$@\"", "sh"};
    limited.insert(limited.end(), words.begin(), words.end());
    return run_child(limited);
  };
  const auto refused = with_limit("38");
  CHECK(refused.code == 1);
  std::smatch needed;
  REQUIRE(std::regex_search(refused.err, needed, std::regex("needs ([0-9]+) descriptors for 4 workers")));
  const auto result = with_limit(needed[1]);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.err, !Catch::Contains("cannot accept"));
}

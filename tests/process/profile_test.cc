// The profile of a job, and the lines of a training about its time: the shares of its parts, and slow ranks.
#include "tests/process/trace_check.h"
#include "tests/process/worker.h"
#include "tests/support/parallel_forms.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// The job has 100 steps of two ranks with 4 samples each, of which rank 1 reads each in 2 ms.
struct SlowJob {
  TempDir folder;
  std::string path = (folder / "train.cfg").string();

  SlowJob() {
    std::ofstream(path) << "[model]\nname = linear\nplugin = " << DDPRUN_PLUGINS
                        << "/libslow_loader.so\n[data]\nname = slow_numbers\nsamples = 800\ntest_samples = 8\n"
                           "[slow]\nrank = 1\nread_us = 2000\n[train]\nbatch_size = 4\nlog_every = 20\n";
  }
};

std::string bottleneck_of(const Child::Result& result) {
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  std::smatch match;
  REQUIRE(std::regex_search(result.out, match, std::regex("\nbottleneck: (.*)\n")));
  return match[1];
}

Words profile_of_two(const std::string& job, const Words& more = {}) {
  Words words{DDPRUN_PROGRAM,       "--standalone",      "--nproc_per_node=2", DDPRUN_WORKER, "profile", job,
              "--profile.steps=10", "--profile.warmup=2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("a rank with a slow loader is named with its host and with data") {
  const SlowJob job;
  // 40 ms a step: longer than a busy machine keeps a rank from a processor.
  const auto result = run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", job.path, "--slow.read_us=10000"});
  digest_of(result);
  INFO(result.out);
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  CHECK_THAT(result.out, Catch::Contains("\nrank 1 on host " + std::string(host) + " is slower than the others: "));
  CHECK_THAT(result.out, Catch::Contains(" theirs ") && Catch::Contains("; data takes "));
  CHECK_THAT(result.out, !Catch::Contains("rank 0 on host"));
  const std::regex line("step 40/100, .* samples/s \\(data [0-9]+ %, compute [0-9]+ %, communication [0-9]+ %\\), ");
  CHECK(std::regex_search(result.out, line));
}

TEST_CASE("the profile of a job whose loaders are slow names the loader, and data.workers") {
  const SlowJob job;
  const auto result = run_job(profile_of_two(job.path, {"--slow.rank=-1", "--data.workers=0"}));
  CHECK_THAT(bottleneck_of(result), Catch::StartsWith("the loader: ") && Catch::Contains("data.workers"));
  CHECK_THAT(result.out, Catch::Contains("profile of 10 steps with 4 samples a rank"));
  CHECK_THAT(result.out, Catch::Contains("with 8 samples a rank: ") && !Catch::Contains("done: "));
}

TEST_CASE("the profile of a job with one slow rank names the rank, and what it waits for") {
  const SlowJob job;
  // 80 ms a step: longer than a busy machine keeps a rank from a processor.
  const auto found = bottleneck_of(run_job(profile_of_two(job.path, {"--slow.read_us=20000"})));
  CHECK_THAT(found, Catch::StartsWith("rank 1 on host ") && Catch::Contains("; data takes "));
}

// An update of muon takes 15 products of each 256 x 256 matrix, a pass with one sample a thousandth of that: the
// verdict does not depend on what else runs here.
TEST_CASE("the profile of a job whose optimizer changes much for few samples names the optimizer") {
  TempDir folder;
  const auto path = (folder / "train.cfg").string();
  std::ofstream(path) << "[model]\nname = mlp\nhidden = 256 256 256\n[data]\nname = random\nsamples = 1000\n"
                         "test_samples = 8\n[train]\nbatch_size = 1\n[optim]\nname = muon\n";
  // The loader has no thread, which might get no processor for a while.
  const auto result = run_worker({"profile", path, "--profile.steps=20", "--data.workers=0"});
  CHECK_THAT(bottleneck_of(result), Catch::StartsWith("the optimizer: ") && Catch::Contains("train.accumulate"));
}

TEST_CASE("a job with profile.steps trains as without, and writes a trace that is well formed") {
  Words words = two_ranks({"--train.max_steps=12", "--data.name=digits", "--data.samples=2000"});
  const auto plain = digest_of(run_job(words));
  TempDir folder;
  const auto trace = folder / "trace.json";
  words.push_back("--profile.steps=4");
  words.push_back("--profile.trace=" + trace.string());
  const auto result = run_job(words);
  CHECK(digest_of(result) == plain);
  CHECK_THAT(result.out, Catch::Contains("profile of 4 steps") && Catch::Contains("conv2d"));
  CHECK_THAT(result.out, Catch::Contains("\noverlap of rank 0: of "));
  bottleneck_of(result);
  auto contents = check_trace(boost::json::parse(read_whole_file(trace)));
  CHECK(contents.processes.size() == 2);
  for (const auto* category : {"phase", "forward", "backward", "communication"})
    CHECK(contents.categories[category] > 0);
}

TEST_CASE("a training set without samples for twice the batch has none measured, and the page says why") {
  const SlowJob job;
  const auto result = run_worker({"profile", job.path, "--profile.steps=2", "--data.samples=7"});
  bottleneck_of(result);
  CHECK_THAT(result.out, Catch::Contains("a larger batch was not measured: the training set has 7 samples"));
}

TEST_CASE("ranks that have parts of a model are profiled with one batch, and the page says why") {
  const std::string key = GENERATE("parallel.zero=1", "parallel.tensor=2", "parallel.expert=2", "parallel.pipeline=2");
  CAPTURE(key);
  const TempDir folder;
  const bool experts = key.starts_with("parallel.expert");
  const auto job = write_form_job(folder.path(), experts ? "gpt_experts" : "gpt", {});
  const auto trace = folder / "trace.json";
  Words more{"--" + key, "--profile.trace=" + trace.string()};
  if (key == "parallel.pipeline=2") more.push_back("--parallel.micro_batches=4");
  const auto result = run_job(profile_of_two(job.string(), more));
  bottleneck_of(result);
  CHECK_THAT(result.out,
             Catch::Contains("a larger batch was not measured: a state of which each rank or device has a part"));
  // Every operation is in the trace; on the page are the longest alone.
  const std::regex product(R"("name":"grouped_mm","cat":"backward",.*"module":"h\..*"flops":[0-9]+)");
  CHECK(std::regex_search(read_whole_file(trace), product) == experts);
}

TEST_CASE("a pipeline over devices of a process is profiled, without the operations of its stages") {
  const TempDir folder;
  const auto job = write_form_job(folder.path(), "gpt", {});
  const auto result = run_worker({"profile", job.string(), "--profile.steps=5", "--profile.warmup=2",
                                  "--parallel.devices=cpu:0 cpu:1", "--parallel.micro_batches=4"});
  bottleneck_of(result);
  CHECK_THAT(result.out, Catch::Contains("profile of 5 steps") && Catch::Contains("\nnone: the stages of a pipeline"));
  CHECK_THAT(result.out,
             Catch::Contains("a larger batch was not measured: a state of which each rank or device has a part"));
}

TEST_CASE("a run that ends before the steps of its profile says so, or reports those that there were") {
  Words words = two_ranks({"--train.max_steps=7", "--data.name=digits", "--data.samples=2000", "--profile.steps=50"});
  CHECK_THAT(run_job(words).out, Catch::Contains("profile of 2 steps"));
  words.push_back("--profile.warmup=7");
  CHECK_THAT(run_job(words).out, Catch::Contains("profile: the run ended within profile.warmup"));
}

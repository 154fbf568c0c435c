// Every job in configs/ in a short form: it trains and evaluates with one and with two ranks, the same command gives
// the same bits, also after a rank was killed.
#include <algorithm>
#include <csignal>
#include <optional>

#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

std::vector<std::filesystem::path> all_configs() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(DDPRUN_CONFIGS))
    if (entry.path().extension() == ".cfg") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns how many ranks share one model, or are a server and its worker: a job has to have a multiple of them.
int ranks_of_a_model(const std::filesystem::path& file) {
  const std::string text = text_of(file);
  const auto has = [&](const char* line) { return text.find(line) != std::string::npos; };
  const bool pairs =
      has("\ntensor = 2") || has("\nservers = 1") || has("[parallel]\ncontext = 2") || has("\nexpert = 2");
  return (pairs ? 2 : 1) * (has("\npipeline = 2") ? 2 : 1);
}
int ranks_of_job(const std::filesystem::path& file) {
  const bool divides_updates = text_of(file).find("\nzero = ") != std::string::npos;
  return std::max(ranks_of_a_model(file) * (divides_updates ? 2 : 1), 2);
}

constexpr int steps = 12;

// A configuration with few small batches. A text is made where one is needed; images and digits are generated.
class ShortJob {
 public:
  explicit ShortJob(std::filesystem::path file, Words more = {}) : file_(std::move(file)), more_(std::move(more)) {
    std::ofstream text(folder_ / "input.txt");
    for (int i = 0; i < 2000; ++i) text << "line " << i * 37 % 101 << " of the text\n";
  }

  // checkpoints is the name of their folder; if it is empty, none are saved.
  Words words(int ranks, const Words& launch = {}, const std::string& checkpoints = "") const {
    Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
    words.insert(words.end(), launch.begin(), launch.end());
    words.push_back(file_.string());
    const bool is_generated = text_of(file_).find("name = text") == std::string::npos;
    for (const auto& each : is_generated ? Words{"--data.samples=96", "--data.test_samples=32"}
                                         : Words{"--data.dir=" + folder_.path().string()})
      words.push_back(each);
    for (const char* each :
         {"--train.batch_size=4", "--train.epochs=100", "--eval.every_epochs=0", "--train.log_every=0"})
      words.push_back(each);
    words.push_back("--train.max_steps=" + std::to_string(steps));
    words.push_back("--metrics.file=" + (folder_ / "metrics").string());
    if (!checkpoints.empty()) {
      words.push_back("--checkpoint.dir=" + (folder_ / checkpoints).string());
      words.push_back("--checkpoint.every_steps=2");
    }
    words.insert(words.end(), more_.begin(), more_.end());
    return words;
  }

  std::string run(int ranks) const { return digest_of(run_job(words(ranks))); }

  // The last rank is killed once some steps are done, and replaced, or all are started again.
  std::string run_killed(int ranks = 2) const { return digest_of(result_of_killed(ranks)); }
  Child::Result result_of_killed(int ranks) const {
    constexpr int tries = 200;
    for (int i = 0; i < tries; ++i)
      if (auto result = try_to_kill(ranks)) return *std::move(result);
    FAIL("the job ended before a rank could be killed, " << tries << " times");
    return {};
  }

 private:
  // None: the job's last steps were done before the rank was killed.
  std::optional<Child::Result> try_to_kill(int ranks) const {
    std::filesystem::remove(folder_ / "metrics");
    std::filesystem::remove_all(folder_ / "checkpoints");
    Child job(words(ranks, {"--max_restarts=1"}, "checkpoints"), one_thread);
    job.wait_until([&] { return text_of(folder_ / "metrics").find("{\"step\": 4,") != std::string::npos; }, "step 4",
                   std::chrono::seconds(60));
    const auto workers = ranks_of(folder_.path().string());
    if (std::ssize(workers) == ranks) ::kill(workers.back(), SIGKILL);
    auto result = job.wait(std::chrono::seconds(60));
    result.out = without_prefixes(result.out);
    if (result.err.find("SIGKILL") == std::string::npos) return std::nullopt;
    return result;
  }

  TempDir folder_;
  std::filesystem::path file_;
  Words more_;
};

}  // namespace

TEST_CASE("every configuration trains and evaluates with its fewest ranks and with two, twice with the same bits") {
  for (const auto& file : all_configs()) {
    DYNAMIC_SECTION(file.filename().string()) {
      const ShortJob job(file);
      const int fewest = ranks_of_a_model(file), ranks = ranks_of_job(file);
      const auto alone = run_job(job.words(fewest));
      CHECK_THAT(alone.out, Catch::Contains("done: 12 steps, loss "));
      CHECK_THAT(alone.out, !Catch::Contains("nan") && !Catch::Contains("inf,"));
      const auto first = job.run(ranks);
      CHECK(job.run(ranks) == first);
      CHECK((digest_of(alone) == first) == (fewest == ranks));
    }
  }
}

TEST_CASE("every configuration ends with the same bits after a rank was killed") {
  for (const auto& file : all_configs()) {
    DYNAMIC_SECTION(file.filename().string()) {
      const ShortJob job(file);
      CHECK(job.run_killed(ranks_of_job(file)) == job.run(ranks_of_job(file)));
    }
  }
}

TEST_CASE("a killed rank of a mesh is named by its coordinates") {
  const auto result = ShortJob(config("gpt_nano_mesh.cfg")).result_of_killed(4);
  CHECK_THAT(result.err, Catch::Contains("rank 3 (pipeline 1, tensor 1, local rank 3, pid "));
}

TEST_CASE("stages on two ranks have the bits of two devices, also after a rank was killed") {
  const ShortJob devices(config("gpt_nano_pipeline.cfg"));
  const auto expected = digest_of(run_job(devices.words(1)));
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    const ShortJob ranks(config("gpt_nano_pipeline.cfg"),
                         {"--parallel.pipeline=2", "--parallel.devices=", "--parallel.schedule=" + schedule});
    CHECK(ranks.run(2) == expected);
    CHECK(ranks.run_killed() == expected);
  }
}

TEST_CASE("schedule, loss scale and augmentation go on where a killed rank left them") {
  const ShortJob job(config("resnet18.cfg"), {"--train.precision=fp16", "--train.loss_scale_growth_interval=3",
                                              "--optim.schedule=cosine", "--optim.warmup=4"});
  CHECK(job.run_killed() == job.run(2));
}

// ddprun-worker plan: the planned memory and traffic of a step, beside the report of a run.
#include <algorithm>
#include <thread>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "tests/process/worker.h"
#include "tests/support/step_records.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

double bytes_in(const std::string& table, const std::string& row) {
  std::smatch match;
  REQUIRE(std::regex_search(table, match, std::regex(row + " +([0-9]+) bytes")));
  return std::stod(match[1]);
}

}  // namespace

TEST_CASE("plan prints the memory that a run of as many ranks reports") {
  const int ranks = GENERATE(1, 2);
  TempDir dir;
  const std::filesystem::path metrics = dir / "metrics";
  const Words job{config("digits.cfg"), "--data.samples=640", "--train.max_steps=5",
                  "--metrics.file=" + metrics.string()};
  Words planning{"plan", "--ranks", std::to_string(ranks)};
  planning.insert(planning.end(), job.begin(), job.end());
  const auto plan = run_worker(planning);
  INFO(plan.out << plan.err);
  REQUIRE(plan.code == 0);
  CHECK_FALSE(std::filesystem::exists(metrics));  // it leaves nothing

  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
  words.insert(words.end(), job.begin(), job.end());
  digest_of(run_job(words));
  const auto text = read_whole_file(metrics);
  const auto run = boost::json::parse(text.substr(0, text.find('\n'))).as_object();
  for (const auto& [row, key] :
       std::map<std::string, std::string>{{"parameters and buffers", "parameter_bytes"},
                                          {"gradients", "gradient_bytes"},
                                          {"optimizer state", "optimizer_bytes"},
                                          {"activations, at the peak", "activation_peak_bytes"}})
    CHECK(bytes_in(plan.out, row) == Approx(run.at(key).to_number<double>()).epsilon(0.1));
  CHECK(bytes_in(plan.out, "sent") == (ranks - 1) * run.at("gradient_bytes").to_number<double>());
}

// The kernel's figure is that of the whole process, so that of a small model is subtracted.
TEST_CASE("the memory that plan prints for a large model is what the kernel counts for its run") {
  const auto job = [](const std::string& hidden) {
    return Words{config("mnist_mlp.cfg"),   "--data.name=digits",  "--data.samples=640",
                 "--data.test_samples=100", "--train.max_steps=4", "--model.hidden=" + hidden};
  };
  const auto planned = [&](const std::string& hidden) {
    Words words{"plan", "--ranks=1"};
    for (const auto& word : job(hidden)) words.push_back(word);
    const auto plan = run_worker(words);
    double sum = 0;
    for (const char* row : {"parameters and buffers", "gradients", "optimizer state", "activations, at the peak"})
      sum += bytes_in(plan.out, row);
    return sum;
  };
  const auto run = [&](const std::string& hidden) {
    const auto result = run_worker(job(hidden));
    digest_of(result);
    return static_cast<double>(result.peak_memory);
  };
  const double measured = run("4096 2048") - run("64 64");
  const double expected = planned("4096 2048") - planned("64 64");
  INFO("measured " << measured << ", planned " << expected);
  CHECK(expected > 150e6);
  CHECK(measured > 0.95 * expected);
  CHECK(measured < 1.15 * expected);  // 1.08 with scratch memory of the products
}

TEST_CASE("plan prints what ranks that divide the layers have and exchange") {
  TempDir dir;
  const std::filesystem::path metrics = dir / "metrics";
  const Words job{
      config("mnist_mlp.cfg"), "--data.name=digits",  "--data.samples=640",  "--data.test_samples=100",
      "--train.max_steps=5",   "--parallel.tensor=2", "--dist.backend=gloo", "--metrics.file=" + metrics.string()};
  Words planning{"plan", "--ranks=2"};
  planning.insert(planning.end(), job.begin(), job.end());
  const auto plan = run_worker(planning);
  INFO(plan.out << plan.err);
  REQUIRE(plan.code == 0);
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"};
  words.insert(words.end(), job.begin(), job.end());
  digest_of(run_job(words));
  const auto text = read_whole_file(metrics);
  const auto memory = boost::json::parse(text.substr(0, text.find('\n'))).as_object();
  CHECK(bytes_in(plan.out, "parameters and buffers") == memory.at("parameter_bytes").to_number<double>());
  const auto first = text.find("{\"step\"");
  const auto step = boost::json::parse(text.substr(first, text.find('\n', first) - first)).as_object();
  // A step has a few bytes more: the sums of losses and times.
  CHECK(bytes_in(plan.out, "sent") == Approx(step.at("bytes_sent").to_number<double>()).epsilon(0.05));

  planning[1] = "--ranks=3";
  const auto refused = run_worker(planning);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Catch::Contains("parallel.tensor = 2: a mesh data x tensor 2 needs a multiple of 2 ranks"));
}

TEST_CASE("plan predicts the bytes that a run over gloo sends, whatever of the model is divided or compressed") {
  const auto layout = GENERATE(values<Words>({{"--parallel.zero=0"},
                                              {"--parallel.zero=1"},
                                              {"--parallel.zero=1", "--optim.name=muon"},
                                              {"--parallel.zero=2"},
                                              {"--parallel.zero=3"},
                                              {"--parallel.tensor=2", "--optim.name=muon"},
                                              {"--parallel.zero=3", "--parallel.reshard_after_forward=false"},
                                              {"--parallel.hook=bf16"},
                                              {"--parallel.hook=int8"},
                                              {"--parallel.hook=int4"},
                                              {"--parallel.hook=topk", "--parallel.topk_fraction=0.1"}}));
  CAPTURE(layout);
  TempDir dir;
  const std::filesystem::path metrics = dir / "metrics";
  Words job{config("digits.cfg"),    "--model.name=mlp",    "--model.hidden=256",
            "--data.samples=640",    "--train.max_steps=2", "--train.accumulate=2",
            "--train.batch_size=16", "--dist.backend=gloo", "--metrics.file=" + metrics.string()};
  job.insert(job.end(), layout.begin(), layout.end());
  Words planning{"plan", "--ranks", "2"};
  planning.insert(planning.end(), job.begin(), job.end());
  const auto plan = run_worker(planning);
  INFO(plan.out << plan.err);
  REQUIRE(plan.code == 0);
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2"};
  words.insert(words.end(), job.begin(), job.end());
  digest_of(run_job(words));
  std::smatch match;
  const std::string text = read_whole_file(metrics);
  REQUIRE(std::regex_search(text, match, std::regex("\"step\": 2.*\"bytes_sent\": ([0-9]+)")));
  CHECK(bytes_in(plan.out, "sent") == Approx(std::stod(match[1])).epsilon(0.1));
}

TEST_CASE("the ranks of a plan share the processors as the launcher shares them") {
  const Words job{"plan", "--ranks=2", config("digits.cfg"), "--data.samples=640", "--train.max_steps=3"};
  const auto threads = [&](const std::string& given) {
    Words words{"/usr/bin/env", "-u", "OMP_NUM_THREADS", "ONEDNN_VERBOSE=1"};
    if (!given.empty()) words.push_back("OMP_NUM_THREADS=" + given);
    words.push_back(DDPRUN_WORKER);
    words.insert(words.end(), job.begin(), job.end());
    const auto result = Child(words, {}).wait(std::chrono::seconds(100));
    INFO(result.out << result.err);
    REQUIRE(result.code == 0);
    std::smatch match;
    REQUIRE(std::regex_search(result.out, match, std::regex("OpenMP,nthr:([0-9]+)")));
    return std::stoi(match[1]);
  };
  CHECK(threads("") == std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2));
  CHECK(threads("3") == 3);
}

TEST_CASE("plan refuses a number of ranks that is none, in one line") {
  for (const Words& ranks : {Words{"--ranks=0"}, Words{"--ranks", "two"}, Words{"--ranks="}}) {
    Words words{"plan", config("digits.cfg")};
    words.insert(words.end(), ranks.begin(), ranks.end());
    const auto result = run_worker(words);
    CHECK(result.code == 2);
    CHECK(result.err.find("--ranks") != std::string::npos);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
}

namespace {

// Returns a small GPT on a text of its own.
Words gpt_job(const TempDir& dir) {
  std::ofstream text(dir / "input.txt");
  for (int i = 0; i < 2000; ++i) text << "line " << i * 37 % 101 << " of the text, ";
  return {config("gpt_nano.cfg"), "--data.dir=" + dir.path().string(),
          "--data.context=32",    "--model.layers=4",
          "--model.width=64",     "--model.heads=4",
          "--train.max_steps=3",  "--eval.every_epochs=0",
          "--dist.backend=gloo",  "--train.log_every=0"};
}

}  // namespace

namespace {

// A row of a table of layouts that ends with a time and the number of processes with which it was measured.
struct MeasuredRow {
  std::string layout;
  double ms = 0;
  int ranks = 0;
  bool is_scaled = false;
};

std::vector<MeasuredRow> measured_rows(const std::string& table) {
  const std::regex form("(data [^.]*[0-9]) +[0-9.]+ .* % +([0-9.]+) +([0-9]+)(, scaled)?");
  std::vector<MeasuredRow> rows;
  std::istringstream lines(table);
  std::smatch match;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, match, form))
      rows.push_back({match[1], std::stod(match[2]), std::stoi(match[3]), match[4].matched});
  return rows;
}

}  // namespace

TEST_CASE("plan prints what the ranks that share samples or experts have and send") {
  const auto [ranks, parallel] = GENERATE(values<std::pair<std::string, Words>>(
      {{"2", {"--parallel.pipeline=2", "--parallel.micro_batches=4", "--parallel.split=h.2"}},
       {"2", {"--parallel.context=2"}},
       {"2", {"--model.experts=4", "--parallel.expert=2"}},
       {"4", {"--parallel.context=2", "--train.global_batch_size=16"}},  // the plan measures two of them
       {"4", {"--model.experts=4", "--parallel.expert=2", "--train.global_batch_size=16"}}}));
  CAPTURE(ranks, parallel);
  TempDir dir;
  const std::filesystem::path metrics = dir / "metrics";
  Words job = gpt_job(dir);
  job.insert(job.end(), parallel.begin(), parallel.end());
  job.push_back("--metrics.file=" + metrics.string());
  Words planning{"plan", "--ranks=" + ranks};
  planning.insert(planning.end(), job.begin(), job.end());
  const auto plan = run_worker(planning);
  INFO(plan.out << plan.err);
  REQUIRE(plan.code == 0);
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + ranks};
  words.insert(words.end(), job.begin(), job.end());
  REQUIRE(Child(words, one_thread).wait(std::chrono::seconds(60)).code == 0);
  const auto records = read_records(metrics);
  CHECK(bytes_in(plan.out, "parameters and buffers") == records.memory.parameters);
  CHECK(bytes_in(plan.out, "optimizer state") == records.memory.optimizer);
  CHECK(bytes_in(plan.out, "activations, at the peak") == Approx(records.memory.activations).epsilon(0.1));
  CHECK(bytes_in(plan.out, "sent") == Approx(records.bytes_sent.at(2)).epsilon(0.1));
}

TEST_CASE("plan --world_size prints every layout, the fastest first, and why the others do not fit") {
  TempDir dir;
  Words words{"plan", "--world_size=4"};
  const auto job = gpt_job(dir);
  words.insert(words.end(), job.begin(), job.end());
  words.push_back("--model.heads=1");
  const auto result = run_worker(words);
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  for (const std::string layout : {"data 4 ", "data 2 x pipeline 2 ", "data 2 x context 2 ", "data 4, zero 1 ",
                                   "data 4, zero 2 ", "data 4, zero 3 ", "data 2 x pipeline 2, zero 1 ",
                                   "data 2 x pipeline 2, zero 3 ", "data 1 x pipeline 2 x context 2, zero 2 "})
    CHECK_THAT(result.out, Catch::Contains("\n" + layout));
  CHECK_THAT(result.out, Catch::Contains("\ndata 2 x tensor 2 ") && Catch::Contains("does not fit: ") &&
                             Catch::Contains("1 heads are no multiple of 2"));
  // A line names each layout while it is measured.
  // 10 factorisations of 4 on four axes, of which 3 have no replicas.
  CHECK_THAT(result.err, Catch::Contains("plan: layout 1 of 31: data 4\n") &&
                             Catch::Contains("plan: layout 4 of 31: data 4, zero 3\n"));
  const auto rows = measured_rows(result.out);
  CHECK(rows.size() == 21);  // one head is not divided, and products of an axis that does not fit are left out
  CHECK(std::ranges::is_sorted(rows, {}, &MeasuredRow::ms));
  // Two ranks are measured for layouts of which four share a model or its samples.
  for (const auto& row : rows) CHECK(row.is_scaled == row.layout.starts_with("data 1 "));
  words.insert(words.begin() + 1, "--ranks=2");
  CHECK(run_worker(words).code == 2);
}

// A hook that rounds by neighbours excludes zero = 2 with every layout, and not the layouts themselves.
TEST_CASE("plan --world_size lists products of an axis that fits with a whole state alone") {
  TempDir dir;
  Words words{"plan", "--world_size=4"};
  const auto job = gpt_job(dir);
  words.insert(words.end(), job.begin(), job.end());
  words.push_back("--parallel.hook=topk");
  const auto result = run_worker(words);
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  CHECK(std::regex_search(result.out, std::regex("\ndata 2 x pipeline 2, zero 2 +does not fit: ")));
  CHECK(std::regex_search(result.out, std::regex("\ndata 1 x pipeline 2 x context 2 +[0-9.]+ ")));
}

TEST_CASE("plan --world_size starts at most two processes, however many ranks are planned") {
  TempDir dir;
  Words words{"plan", "--world_size=64"};
  const auto job = gpt_job(dir);
  words.insert(words.end(), job.begin(), job.end());
  words.push_back("--train.global_batch_size=64");
  const auto result = run_worker(words);
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  const auto rows = measured_rows(result.out);
  CHECK(rows.size() > 10);
  for (const auto& row : rows) CHECK(row.ranks == 2);
  CHECK_THAT(result.out, Catch::Contains("does not fit"));
}

// The model takes more than a terabyte: that of no machine of a test.
TEST_CASE("plan computes a GPT of 70 billion parameters for 1,024 ranks, and starts none") {
  TempDir dir;
  Words job = gpt_job(dir);
  for (const std::string word :
       {"--data.context=2048", "--model.context=2048", "--model.layers=87", "--model.width=8192", "--model.heads=64",
        "--model.vocabulary=32768", "--train.batch_size=1", "--train.precision=bf16"})
    job.push_back(word);
  const auto plan = [&](const std::string& ranks, const Words& settings) {
    Words words{"plan", ranks};
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), settings.begin(), settings.end());
    const auto result = run_worker(words);
    INFO(result.out << result.err);
    REQUIRE(result.code == 0);
    CHECK_THAT(result.err, !Catch::Contains("plan: "));  // nothing is measured
    return result.out;
  };
  constexpr double parameters = 87 * 12 * 8192.0 * 8192 + (32768 + 2048) * 8192.0;

  const std::string table = plan("--world_size=1024", {});
  std::smatch match;
  REQUIRE(std::regex_search(table, match, std::regex("\ndata 1024 +([0-9.]+) +([0-9.]+) +([0-9.]+) ")));
  CHECK(std::stod(match[1]) == Approx(4 * parameters / (1 << 20)).epsilon(0.01));
  CHECK(std::stod(match[3]) == Approx(8 * parameters / (1 << 20)).epsilon(0.01));
  REQUIRE(std::regex_search(table, match, std::regex("\ndata 1024, zero 3 +([0-9.]+) +([0-9.]+) +([0-9.]+) ")));
  CHECK(std::stod(match[1]) == Approx(4 * parameters / 1024 / (1 << 20)).epsilon(0.02));
  CHECK_THAT(table, Catch::Contains("\ndata 16 x tensor 8 x pipeline 8 ") &&
                        Catch::Contains("\ndata 1 x pipeline 1024 ") && Catch::Contains("\n-: not measured; "));

  const std::string one = plan("--ranks=1024", {"--parallel.tensor=8", "--parallel.pipeline=8",
                                                "--parallel.micro_batches=32", "--parallel.zero=1"});
  constexpr double of_rank = (11 * 12 * 8192.0 * 8192 + (32768 + 2048) * 8192.0) / 8;  // 11 blocks and the embedding
  CHECK(bytes_in(one, "parameters and buffers") == Approx(4 * of_rank).epsilon(0.02));
  CHECK(bytes_in(one, "optimizer state") == Approx(8 * of_rank / 16).epsilon(0.02));
  CHECK_THAT(one, Catch::Contains("not measured: ") && Catch::Contains(" of 87 blocks"));
}

TEST_CASE("plan counts the copy of the state that a checkpoint in the background takes") {
  TempDir dir;
  const auto plan = [&](const Words& settings) {
    Words words{"plan"};
    const auto job = gpt_job(dir);
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), settings.begin(), settings.end());
    const auto result = run_worker(words);
    REQUIRE(result.code == 0);
    return result.out;
  };
  const std::string folder = "--checkpoint.dir=" + (dir / "checkpoints").string();
  const std::string table = plan({folder});
  CHECK(bytes_in(table, "copy for a checkpoint") ==
        bytes_in(table, "parameters and buffers") + bytes_in(table, "optimizer state"));
  CHECK_THAT(plan({}), !Catch::Contains("copy for a checkpoint"));
  CHECK_THAT(plan({folder, "--checkpoint.background=false"}), !Catch::Contains("copy for a checkpoint"));
}

TEST_CASE("the copies that plan counts are as large as the files that the ranks of a run write") {
  const auto layout = GENERATE(values<Words>({{"--parallel.zero=1"},
                                              {"--parallel.zero=3"},
                                              {"--parallel.tensor=2"},
                                              {"--parallel.pipeline=2", "--parallel.micro_batches=4"}}));
  CAPTURE(layout);
  constexpr int ranks = 4;
  TempDir dir;
  Words job = gpt_job(dir);
  job.insert(job.end(), layout.begin(), layout.end());
  job.insert(job.end(), {"--train.global_batch_size=16", "--checkpoint.dir=" + (dir / "checkpoints").string()});
  Words planning{"plan", "--ranks=" + std::to_string(ranks)};
  planning.insert(planning.end(), job.begin(), job.end());
  const auto plan = run_worker(planning);
  INFO(plan.out << plan.err);
  REQUIRE(plan.code == 0);
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
  words.insert(words.end(), job.begin(), job.end());
  digest_of(run_job(words));
  double all = 0, largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto file = dir / fmt::format("checkpoints/step_000003/part_{:05}.safetensors", rank);
    const auto bytes = static_cast<double>(std::filesystem::file_size(file));
    all += bytes;
    largest = std::max(largest, bytes);
  }
  const double planned = bytes_in(plan.out, "copy for a checkpoint");
  CHECK(planned < 1.05 * largest);
  CHECK(planned > 0.95 * all / ranks);
}

TEST_CASE("plan --world_size divides the experts of a model that has some") {
  TempDir dir;
  Words words{"plan", "--world_size=2"};
  const auto job = gpt_job(dir);
  words.insert(words.end(), job.begin(), job.end());
  words.push_back("--model.experts=4");
  const auto result = run_worker(words);
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  CHECK(std::regex_search(result.out, std::regex("\ndata 1 x expert 2 .* % +[0-9.]+ +2\n")));
  CHECK(std::regex_search(result.out, std::regex("\ndata 1 x tensor 2 .* % +[0-9.]+ +2\n")));
}

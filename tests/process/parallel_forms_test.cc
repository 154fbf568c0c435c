// Every form of parallel training: a job that loses a worker ends as one that does not.
#include "tests/support/parallel_forms.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/process/worker.h"
#include "tests/support/step_records.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr int steps = 70;
constexpr int killed_at = 12;     // or as many steps later as the pipe holds records
constexpr int pipe_bytes = 4096;  // fewer than 45 records

// metrics.file as a pipe that the test reads only in small steps, so that the job cannot be far ahead of it.
class RecordPipe {
 public:
  explicit RecordPipe(const std::filesystem::path& path) {
    if (::mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed");
    fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    ::fcntl(fd_.get(), F_SETPIPE_SZ, pipe_bytes);
  }

  int last_step() const { return last_step_; }
  // Returns the first step after a restart; 0 if there was none.
  int resumed_at() const { return resumed_at_; }

  // Reads the next byte; returns whether there was one.
  bool read_one() {
    char byte = 0;
    if (::read(fd_.get(), &byte, 1) != 1) return false;
    if (byte != '\n') return line_.push_back(byte), true;
    const auto record = boost::json::parse(line_).as_object();
    if (record.contains("step")) take_step(static_cast<int>(record.at("step").as_int64()));
    line_.clear();
    return true;
  }

 private:
  void take_step(int step) {
    if (step <= last_step_) resumed_at_ = step;
    last_step_ = step;
  }

  UniqueFd fd_;
  std::string line_;
  int last_step_ = 0;
  int resumed_at_ = 0;
};

Words job_of(const ParallelForm& form, const TempDir& folder, const Words& options = {}, const Words& more = {}) {
  Words words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(form.ranks)};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(write_form_job(folder.path(), form.model, {}).string());
  words.push_back("--train.max_steps=" + std::to_string(steps));
  for (const auto& each : form.overrides) words.push_back("--" + each);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Runs a job of which one worker is killed, and which continues from a checkpoint.
Child::Result killed_job(const ParallelForm& form) {
  const TempDir folder;
  RecordPipe records(folder / "metrics");
  Child job(job_of(form, folder, {"--max_restarts=1"},
                   {"--metrics.file=" + (folder / "metrics").string(), "--checkpoint.every_steps=5",
                    "--checkpoint.dir=" + (folder / "checkpoints").string()}),
            one_thread);
  const auto read_until = [&](int step) {
    while (records.last_step() < step && records.read_one()) continue;
    return records.last_step() >= step;
  };
  job.wait_until([&] { return read_until(killed_at); }, "step " + std::to_string(killed_at), std::chrono::seconds(60));
  const auto workers = ranks_of(folder.path().string());
  REQUIRE(std::ssize(workers) == form.ranks);
  ::kill(workers.back(), SIGKILL);
  job.wait_until([&] { return read_until(steps); }, "the last step", std::chrono::seconds(60));
  CHECK(records.resumed_at() != 1);  // 0: killed right after a checkpoint, so that no step came twice
  return job.wait(std::chrono::seconds(60));
}

double last_loss(const Child::Result& result) {
  std::smatch match;
  REQUIRE(std::regex_search(result.out, match, std::regex("done: .* loss ([0-9.]+)")));
  return std::stod(match[1]);
}

void check_survives(const std::vector<ParallelForm>& forms) {
  for (const auto& form : forms) {
    INFO(form.name);
    const TempDir folder;
    auto expected = Child(job_of(form, folder), one_thread).wait(std::chrono::seconds(60)), found = killed_job(form);
    const auto digest = digest_of(expected);
    CHECK_THAT(found.err, Catch::Contains("SIGKILL"));
    if (form.repeatable)
      CHECK(digest_of(found) == digest);
    else
      CHECK(last_loss(found) == Approx(last_loss(expected)).epsilon(1e-4));
  }
}

}  // namespace

TEST_CASE("a form of data parallelism that loses a worker ends with the same bits") {
  check_survives(data_parallel_forms());
}

TEST_CASE("a form with less communication that loses a worker ends with the same bits") {
  check_survives(compressed_forms());
}

TEST_CASE("a form that divides the model and loses a worker ends with the same bits") {
  check_survives(divided_model_forms());
}

TEST_CASE("a product of forms that loses a worker ends with the same bits") {
  check_survives(mesh_forms());
}

TEST_CASE("a pipeline that loses a worker ends with the same bits, by every schedule") {
  check_survives(pipeline_forms());
}

// The first stage's parameters are gathered twice, and their gradients reduced, for each of four micro-batches among
// two ranks; its activations go to the next stage, and a half of the embedding's gradient to and fro.
TEST_CASE("what the ranks of a stage that divide its parameters send is what the formula says") {
  const ParallelForm form{
      .name = "pipeline with zero 3",
      .ranks = 4,
      .overrides = {"parallel.zero=3", "parallel.pipeline=2", "parallel.micro_batches=4", "parallel.split=h.2"}};
  const TempDir folder;
  const auto metrics = (folder / "metrics").string();
  const auto result = Child(job_of(form, folder, {},
                                   {"--dist.backend=gloo", "--train.max_steps=3", "--train.memory_report=true",
                                    "--metrics.file=" + metrics}),
                            one_thread)
                          .wait(std::chrono::seconds(60));
  REQUIRE(result.code == 0);
  const auto records = read_records(metrics);
  constexpr double samples = 8, context = 16, width = 32, layer = 12 * width * width + 13 * width;
  const double parameters = 2 * records.memory.parameters;  // a rank has a half of them
  const double embedding = parameters - 4 * (context * width + 2 * layer);
  const double expected = 4 * 3 * parameters / 2 + 4 * samples * context * width + embedding / 2;
  CHECK(records.bytes_sent.at(2) == Approx(expected).epsilon(0.01));
}

// The bytes are those of an allgather of the parameters twice and a reduce-scatter of their gradients within each group
// of two, and the average of a half of them over two groups: 3 / 2 + 1 / 2 of the parameters' bytes.
TEST_CASE("what is sent within and across shard groups is counted") {
  const ParallelForm form{
      .name = "shard groups", .ranks = 4, .overrides = {"parallel.zero=3", "parallel.shard_group=2"}};
  const TempDir folder;
  const auto metrics = (folder / "metrics").string();
  const auto result = Child(job_of(form, folder, {},
                                   {"--dist.backend=gloo", "--train.max_steps=3", "--train.memory_report=true",
                                    "--metrics.file=" + metrics}),
                            one_thread)
                          .wait(std::chrono::seconds(60));
  REQUIRE(result.code == 0);
  const auto records = read_records(metrics);
  const double parameters = 2 * records.memory.parameters;  // a rank has a half of them
  REQUIRE(records.bytes_sent.size() == 3);
  CHECK(records.bytes_sent[2] == Approx(2 * parameters).epsilon(0.1));
}

// ddprun-worker predict: the model of the newest checkpoint on the samples of a file.
#include "worker/data/digits.h"
#include "worker/data/patterns.h"
#include "tests/process/worker.h"
#include "tests/unit/data/idx_files.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

constexpr std::int64_t tested = 240;

using Labels = std::vector<int>;

template <class Levels>
std::string bytes_of(const Levels& levels) {
  return {levels.begin(), levels.end()};
}

Labels write_patterns(const std::filesystem::path& path, data::Split split, std::int64_t begin, std::int64_t end) {
  Labels labels;
  std::string records;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto pattern = data::draw_pattern(0, split, i);
    labels.push_back(pattern.label);
    records += std::string(1, static_cast<char>(pattern.label)) + bytes_of(pattern.levels);
  }
  write_plain(path, records);
  return labels;
}

// Writes a folder in CIFAR-10's format; returns the test labels.
Labels write_cifar10(const std::filesystem::path& folder) {
  for (int i = 0; i < 5; ++i)
    write_patterns(folder / ("data_batch_" + std::to_string(i + 1) + ".bin"), data::Split::train, 400 * i,
                   400 * i + 400);
  return write_patterns(folder / "test_batch.bin", data::Split::test, 0, tested);
}

Labels write_digits(const std::filesystem::path& folder, const std::string& prefix, data::Split split,
                    std::uint32_t size) {
  Labels labels;
  std::string images, marks;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto digit = data::draw_digit(0, split, i);
    labels.push_back(digit.label);
    images += bytes_of(digit.levels);
    marks += static_cast<char>(digit.label);
  }
  write_compressed(folder / (prefix + "-images-idx3-ubyte.gz"), idx_bytes({size, 28, 28}, images));
  write_plain(folder / (prefix + "-labels-idx1-ubyte"), idx_bytes({size}, marks));
  return labels;
}

// Writes a folder in MNIST's format; returns the test labels.
Labels write_mnist(const std::filesystem::path& folder) {
  write_digits(folder, "train", data::Split::train, 2000);
  return write_digits(folder, "t10k", data::Split::test, tested);
}

using Rows = std::vector<std::vector<double>>;

// Returns the lines below the header, which is checked.
Rows rows_of(const std::string& csv, const std::string& header) {
  std::istringstream lines(csv);
  std::string line;
  REQUIRE(std::getline(lines, line));
  CHECK(line == header);
  Rows rows;
  while (std::getline(lines, line)) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(std::stod(cell));
  }
  return rows;
}

// Returns the accuracy of predictions of the test set, in percent; checks that each is well formed.
double accuracy_of(const Rows& rows, const Labels& labels) {
  REQUIRE(rows.size() == labels.size());
  int correct = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(rows[i].size() == 3);
    CHECK(rows[i][0] == static_cast<double>(i));
    CHECK(rows[i][2] >= 0.1);  // the probability of the likeliest of ten
    CHECK(rows[i][2] <= 1);
    correct += static_cast<int>(rows[i][1]) == labels[i];
  }
  return 100.0 * correct / static_cast<double>(labels.size());
}

}  // namespace

TEST_CASE("the accuracy of predictions is that of the evaluation") {
  TempDir dir;
  std::filesystem::create_directory(dir / "data");
  Labels labels;
  std::string name, file;
  SECTION("CIFAR-10 records") {
    labels = write_cifar10(dir / "data");
    name = "cifar10";
    file = dir / "data/test_batch.bin";
  }
  SECTION("an IDX file") {
    labels = write_mnist(dir / "data");
    name = "mnist";
    file = dir / "data/t10k-images-idx3-ubyte.gz";
  }
  const Words job{config("mnist.cfg"), "--data.name=" + name, "--data.dir=" + (dir / "data").string(),
                  "--checkpoint.dir=" + (dir / "checkpoints").string(), "--eval.batch_size=64"};
  const auto with = [&](const std::string& command, const Words& more) {
    Words words{command};
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  Words training(with("", {"--train.epochs=4"}));
  training.erase(training.begin());
  const double expected = testing::accuracy_of(run_worker(training));
  CHECK(expected > 30);
  CHECK(expected < 99);  // wrong predictions are counted too

  const auto from_file = run_worker(with("predict", {"--predict.input=" + file}));
  INFO(from_file.err);
  REQUIRE(from_file.code == 0);
  CHECK(accuracy_of(rows_of(from_file.out, "index,class,probability"), labels) == Approx(expected).margin(0.006));

  std::filesystem::path csv = dir / "predictions.csv";
  const auto test_set = run_worker(with("predict", {"--predict.output=" + csv.string()}));
  CHECK(test_set.code == 0);
  CHECK(test_set.out.empty());
  CHECK(read_whole_file(csv) == from_file.out);
}

TEST_CASE(
    "evaluate prints the figures with which training ended, of a checkpoint or a file, with any number of ranks") {
  TempDir dir;
  const std::string checkpoints = (dir / "checkpoints").string();
  const Words job{config("digits.cfg"), "--data.samples=640", "--data.test_samples=101", "--eval.batch_size=20"};
  const auto trained = run_worker(joined(job, {"--train.epochs=1", "--checkpoint.dir=" + checkpoints}));
  digest_of(trained);
  std::smatch last;
  REQUIRE(std::regex_search(trained.out, last, std::regex("done: .* (loss [0-9.]+, accuracy [0-9.]+ %)")));
  const std::string expected = "test " + last[1].str() + ", 101 samples\n";

  const auto evaluate = joined({"evaluate"}, job);
  CHECK(run_worker(joined(evaluate, {"--checkpoint.dir=" + checkpoints})).out == expected);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoints))
    if (entry.path().filename() == "model.safetensors") files.push_back(entry.path());
  REQUIRE_FALSE(files.empty());
  const std::string weights = "--model.weights=" + std::ranges::max(files).string();
  CHECK(run_worker(joined(evaluate, {weights})).out == expected);
  const Words two_ranks{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--no-python", DDPRUN_WORKER};
  CHECK(run_job(joined(joined(two_ranks, evaluate), {weights})).out == expected);

  const auto predicted = run_worker(joined({"predict"}, joined(job, {weights})));
  CHECK(predicted.code == 0);
  CHECK(std::count(predicted.out.begin(), predicted.out.end(), '\n') == 1 + 101);
  CHECK(run_worker(evaluate).code == 2);
}

TEST_CASE("numbers are predicted from a CSV file") {
  TempDir dir;
  const Words job{config("linear.cfg"), "--data.shape=2", "--data.outputs=1", "--data.noise=0",
                  "--checkpoint.dir=" + (dir / "checkpoints").string()};
  digest_of(run_worker(job));
  write_plain(dir / "x.csv", "0,0\n1, 0\r\n0,1\n1,1\n");
  Words words{"predict"};
  words.insert(words.end(), job.begin(), job.end());
  words.push_back("--predict.input=" + (dir / "x.csv").string());
  const auto rows = rows_of(run_worker(words).out, "index,output0");
  REQUIRE(rows.size() == 4);
  // The model is linear: f(1, 1) = f(1, 0) + f(0, 1) - f(0, 0), and no constant.
  CHECK(rows[3][1] == Approx(rows[1][1] + rows[2][1] - rows[0][1]).margin(1e-4));
  CHECK(std::abs(rows[1][1] - rows[2][1]) > 1e-3);
}

TEST_CASE("predict refuses what it cannot predict, in one line") {
  TempDir dir;
  const auto error_of = [&](const Words& more) {
    Words words{"predict", config("linear.cfg")};
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_worker(words);
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    const auto error = result.err.substr(result.err.find("[ddprun-worker] error: "));
    CHECK(std::count(error.begin(), error.end(), '\n') == 1);
    return error;
  };
  CHECK_THAT(error_of({}), Catch::Contains("predict needs checkpoint.dir"));
  CHECK_THAT(error_of({"--checkpoint.dir=" + dir.path().string()}), Catch::Contains("holds no checkpoint"));
  CHECK_THAT(error_of({"--predict.input=" + (dir / "none.csv").string()}),
             Catch::Contains((dir / "none.csv").string()));
  CHECK_THAT(error_of({"--predict.input=images"}),
             Catch::Contains("images: samples of data.name = random are read from a .csv file"));
  CHECK_THAT(error_of({"--data.name=text", "--model.name=gpt"}),
             Catch::Contains("predict needs samples with a class or numbers to predict, not data.name = text"));
  const std::string checkpoints = "--checkpoint.dir=" + (dir / "checkpoints").string();
  digest_of(run_worker({config("linear.cfg"), checkpoints}));
  CHECK_THAT(error_of({checkpoints, "--model.name=mlp"}), Catch::Contains("checkpoints"));
}

#include <algorithm>
#include <fstream>

#include "common/host_port.h"
#include "tests/process/worker.h"
#include "tests/support/free_port.h"
#include "tests/unit/data/idx_files.h"

// Two agents whose workers do not have the same settings or data: both report a usage error instead of training.
using namespace ddprun::testing;

namespace {

struct Node {
  Words overrides;
  std::map<std::string, std::string> variables = {};
};

// The two nodes of a job of one rank each, in a folder without data/mnist.
std::vector<Child::Result> run_nodes(const Words& job, const Node& a, const Node& b) {
  const TempDir folder;
  const Words launch{
      "/usr/bin/env",         "-C",
      folder.path().string(), DDPRUN_PROGRAM,
      "--nnodes=2",           "--nproc_per_node=1",
      "--max_restarts=2",     "--rdzv_endpoint=127.0.0.1:" + std::to_string(ddprun::testing::free_port())};
  const auto start = [&](const Node& node) {
    Words words = launch;
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), node.overrides.begin(), node.overrides.end());
    auto variables = one_thread;
    for (const auto& [name, value] : node.variables) variables[name] = value;
    return std::make_unique<Child>(words, variables);
  };
  const auto first = start(a), second = start(b);
  return {first->wait(std::chrono::seconds(60)), second->wait(std::chrono::seconds(60))};
}

// Both nodes name the item with both values, once and without a restart, and exit with 2.
void check_refused(const Words& job, const Node& a, const Node& b, const std::string& item,
                   const std::vector<std::string>& values) {
  const auto on_host = " on host " + ddprun::local_host_name() + " has ";
  for (const auto& result : run_nodes(job, a, b)) {
    INFO(result.out << result.err);
    CHECK(result.code == 2);
    const auto sentence = "error: the ranks differ in " + item + ": rank 0" + on_host;
    const auto at = result.err.find(sentence);
    REQUIRE(at != std::string::npos);
    const auto line = result.err.substr(at, result.err.find('\n', at) - at);
    CHECK(line.find(", rank 1" + on_host) != std::string::npos);
    for (const auto& value : values) CHECK(line.find(on_host + value) != std::string::npos);
    CHECK(result.err.find(sentence, at + 1) == std::string::npos);
    CHECK(result.err.find("restart") == std::string::npos);
    CHECK(result.err.find("FAILED") == std::string::npos);
    CHECK(result.out.find("step ") == std::string::npos);
  }
}

const Words linear{config("linear.cfg").string(), "--train.epochs=1"};

// Writes a folder with MNIST's files, of 40 images each.
void write_mnist(const std::filesystem::path& folder, char last_pixel = 'p') {
  std::filesystem::create_directories(folder);
  for (const std::string split : {"train", "t10k"}) {
    std::string levels(40 * 28 * 28, 'p'), labels;
    if (split == "train") levels.back() = last_pixel;
    for (int i = 0; i < 40; ++i) labels += static_cast<char>(i % 10);
    write_plain(folder / (split + "-images-idx3-ubyte"), idx_bytes({40, 28, 28}, levels));
    write_plain(folder / (split + "-labels-idx1-ubyte"), idx_bytes({40}, labels));
  }
}

Words mnist_job() {
  return {config("mnist.cfg").string(), "--train.epochs=1", "--train.batch_size=8", "--model.name=linear"};
}

}  // namespace

TEST_CASE("settings that differ between two nodes are refused at both before the first step") {
  check_refused(linear, {{"--optim.lr=0.1"}}, {{"--optim.lr=0.2"}}, "optim.lr", {"0.1", "0.2"});
  check_refused(linear, {{"--train.seed=1"}}, {{"--train.seed=2"}}, "train.seed", {"1", "2"});
  check_refused(linear, {{"--train.batch_size=32"}}, {{}}, "train.batch_size", {"32", "64"});
  check_refused(linear, {{"--dist.bucket_mb=1"}}, {{}}, "dist.bucket_mb", {"1", "25"});
  const TempDir dir;
  check_refused(linear, {{"--metrics.file=" + (dir / "m").string()}}, {{}}, "metrics.file", {"a path", "no path"});
}

TEST_CASE("what concerns a node alone may differ") {
  const TempDir a, b;
  const auto result = run_nodes(
      linear,
      {{"--train.log_every=7", "--data.workers=0", "--metrics.file=" + (a / "m").string(),
        "--checkpoint.dir=" + (a / "checkpoints").string(), "--train.detect_anomaly=true"}},
      {{"--train.log_every=9", "--data.prefetch=2", "--metrics.file=" + (b / "m").string(),
        "--checkpoint.dir=" + (b / "checkpoints").string(), "--metrics.tensorboard=" + (b / "events").string()}});
  for (const auto& node : result) {
    INFO(node.err);
    CHECK(node.code == 0);
  }
}

TEST_CASE("one node with other data than the other is refused, also where it generates them") {
  const TempDir dir;
  write_mnist(dir / "a");
  write_mnist(dir / "b");
  write_mnist(dir / "changed", 'q');
  const auto in = [&](const std::string& folder) { return Node{{"--data.dir=" + (dir / folder).string()}}; };
  for (const auto& node : run_nodes(mnist_job(), in("a"), in("b"))) {
    INFO(node.err);
    CHECK(node.code == 0);
  }
  check_refused(mnist_job(), in("a"), in("changed"), "train-images-idx3-ubyte", {"31360 bytes, CRC-32C "});
  check_refused(mnist_job(), in("a"), {{"--data.samples=40", "--data.test_samples=40"}}, "data.samples", {"40"});
  check_refused(mnist_job(), in("a"), {}, "the training data",
                {"40 samples of 1x28x28 from files", "10000 computed samples"});
}

TEST_CASE("other initial weights or another tokenizer are refused by content, not by path") {
  const TempDir dir;
  const auto weights = [&](const std::string& name, const std::string& seed) {
    const auto folder = (dir / name).string();
    const auto result = run_worker({config("linear.cfg"), "--train.max_steps=1", "--train.seed=" + seed,
                                    "--checkpoint.dir=" + folder, "--train.log_every=0"});
    REQUIRE(result.code == 0);
    std::string file;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.path().filename() == "model.safetensors") file = entry.path().string();
    REQUIRE_FALSE(file.empty());
    return Node{{"--model.weights=" + file}};
  };
  const auto a = weights("a", "1"), same = weights("same", "1"), other = weights("other", "2");
  for (const auto& node : run_nodes(linear, a, same)) CHECK(node.code == 0);
  check_refused(linear, a, other, "the file of model.weights", {});
  check_refused(linear, a, {}, "model.weights", {"a path", "no path"});

  write_plain(dir / "input.txt", "the quick brown fox jumps over the lazy dog\nand then the dog jumps over the fox\n");
  const Words text{config("gpt_nano.cfg").string(), "--data.dir=" + dir.path().string(), "--data.context=8",
                   "--train.max_steps=1", "--eval.every_epochs=0"};
  const auto tokenizer = [&](const std::string& name, const std::string& tokens) {
    const Node node{{"--data.tokenizer=" + (dir / name).string()}};
    Words words{"tokenize"};
    words.insert(words.end(), text.begin(), text.end());
    words.insert(words.end(), {node.overrides[0], "--tokenize.vocabulary=" + tokens});
    REQUIRE(run_worker(words).code == 0);
    return node;
  };
  check_refused(text, tokenizer("t260", "260"), tokenizer("t261", "261"), "vocab.json of data.tokenizer", {});
}

TEST_CASE("settings of the process group that differ are a mistake in the settings too") {
  for (const auto& node : run_nodes(linear, {{"--dist.backend=gloo"}}, {{"--dist.backend=shm"}})) {
    INFO(node.err);
    CHECK(node.code == 2);
    CHECK(node.err.find("back end gloo") != std::string::npos);
    CHECK(node.err.find("back end shm") != std::string::npos);
    CHECK(node.err.find("restart") == std::string::npos);
  }
}

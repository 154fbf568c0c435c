#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/host_port.h"
#include "tests/process/worker.h"
#include "tests/support/free_port.h"

// A mistake in a train.cfg: one line and exit code 2, with and without a launcher.
using namespace ddprun::testing;

namespace {

struct Mistake {
  TempDir folder;
  std::string config = (folder / "train.cfg").string();
  std::string sentence = config + ":2: unknown key train.epochz; did you mean train.epochs?";

  Mistake() { std::ofstream(config) << "[train]\nepochz = 3\n"; }
};

}  // namespace

TEST_CASE("ddprun prints a mistake in a train.cfg once, without a failure summary, and does not restart") {
  const Mistake mistake;
  const auto result =
      run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=4", "--max_restarts=2", mistake.config});
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(result.err == "[ddprun] error: " + mistake.sentence + "\n");
}

TEST_CASE("a mistake is printed once without log files too, and its temporary folder is removed") {
  const Mistake mistake;
  const TempDir temporary;
  auto variables = one_thread;
  variables["TMPDIR"] = temporary.path().string();
  const auto result = run_child(
      {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=3", "--log_dir=/dev/null", mistake.config}, variables);
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun] error: " + mistake.sentence + "\n");
  CHECK(std::filesystem::is_empty(temporary.path()));
}

TEST_CASE("a model that does not fit the data is a usage error too") {
  const auto result = run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", config("mnist.cfg"),
                               "--data.name=random", "--data.samples=64", "--data.shape=7", "--model.name=cnn"});
  INFO(result.err);
  CHECK(result.code == 2);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

namespace {

// Returns a job of a second, of sgd with a momentum.
std::string momentum_job(const TempDir& folder) {
  const auto path = (folder / "train.cfg").string();
  std::ofstream(path) << "[model]\nname = linear\n[data]\nname = random\nsamples = 64\ntest_samples = 32\n"
                         "[optim]\nname = sgd\nmomentum = 0.9\n";
  return path;
}

std::ptrdiff_t count_of(const std::string& part, const std::string& text) {
  std::ptrdiff_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a setting that has no effect is a mistake in one line, and the job does not start") {
  const TempDir folder;
  const auto config = momentum_job(folder);
  const auto result = run_job(
      {DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=2", config, "--optim.warmup_start=0.5"});
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(result.err ==
        "[ddprun] error: --optim.warmup_start: optim.warmup_start = 0.5: it has no effect with optim.warmup = 0 "
        "(default); it needs optim.warmup\n");
  const auto generates = run_worker({config, "--generate.tokens=5"});
  CHECK(generates.code == 2);
  CHECK(generates.err ==
        "[ddprun-worker] error: --generate.tokens: generate.tokens = 5: it has no effect in training; it needs "
        "ddprun-worker generate\n");
}

TEST_CASE("a setting of the file that an override makes idle gets one line of one rank, and the job runs") {
  const TempDir folder;
  const auto config = momentum_job(folder);
  const auto result = run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", config, "--optim.name=adam"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(count_of("has no effect", result.err) == 1);
  CHECK(count_of(config + ":9: optim.momentum = 0.9: it has no effect with optim.name = adam (--optim.name); it needs "
                          "optim.name = sgd, rmsprop, lars or muon\n",
                 result.err) == 1);
  const auto printed = run_worker({config, "--optim.name=adam", "--print-config"});
  CHECK(printed.code == 0);
  CHECK_THAT(printed.out, Catch::Contains("\n# momentum = 0 ") && Catch::Contains("# --optim.name, no effect\n"));
}

TEST_CASE("a device for one process alone is a mistake, and no restart is tried") {
  const TempDir folder;
  const auto result = run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=3",
                               momentum_job(folder), "--parallel.devices=cuda:0"});
  CHECK(result.code == 2);
  CHECK(result.out.empty());
  CHECK(
      result.err ==
      "[ddprun] error: parallel.devices = cuda:0: CUDA devices are named for a job of one process, this one has 2; use "
      "train.device = cuda alone\n");
}

TEST_CASE("a file that cannot be written is told once, before ranks wait for each other, and no restart is tried") {
  const TempDir folder;
  const auto file = (folder / "file").string();
  std::ofstream(file) << "x";
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"checkpoint.dir = " + file + "/c", "Not a directory"},
      {"metrics.file = " + folder.path().string(), "Is a directory"},
      {"metrics.file = " + file + "/m", "Not a directory"},
      {"metrics.tensorboard = " + file, "Not a directory"}};
  for (const auto& [setting, reason] : mistakes) {
    const auto equals = setting.find(" = ");
    const auto result =
        run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=3", momentum_job(folder),
                 "--" + setting.substr(0, equals) + "=" + setting.substr(equals + 3)});
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    CHECK(result.err == "[ddprun] error: " + setting + ": it cannot be written: " + reason + "\n");
  }
}

TEST_CASE("damaged data and a folder of damaged checkpoints are mistakes of all ranks, and are told once") {
  const TempDir folder;
  for (const char* name :
       {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    std::ofstream(folder / name) << "damaged";
  Words words{DDPRUN_PROGRAM,     "--standalone",          "--nproc_per_node=2",
              "--max_restarts=3", config("mnist_mlp.cfg"), "--data.dir=" + folder.path().string()};
  const auto data = run_job(words);
  CHECK(data.code == 2);
  CHECK_THAT(data.err, Catch::StartsWith("[ddprun] error: " + folder.path().string()) &&
                           Catch::Contains("expected the bytes 00 00 of an IDX file"));
  CHECK(std::count(data.err.begin(), data.err.end(), '\n') == 1);

  const auto checkpoints = folder / "checkpoints";
  words = {DDPRUN_PROGRAM,        "--standalone",
           "--nproc_per_node=2",  "--max_restarts=3",
           momentum_job(folder),  "--checkpoint.dir=" + checkpoints.string(),
           "--train.max_steps=1", "--checkpoint.resume=auto"};
  REQUIRE(run_job(words).code == 0);
  std::filesystem::resize_file(checkpoints / "step_000001" / "model.safetensors", 8);
  const auto refused = run_job(words);
  CHECK(refused.code == 2);
  const auto sentence = "error: no checkpoint in " + checkpoints.string() + " can be used (1 found)";
  const auto at = refused.err.find("[ddprun] " + sentence);
  REQUIRE(at != std::string::npos);
  CHECK(refused.err.find(sentence) == at + std::string("[ddprun] ").size());
  CHECK(std::count(refused.err.begin() + static_cast<std::ptrdiff_t>(at), refused.err.end(), '\n') == 1);
}

TEST_CASE("test images of another size than those to learn from are a mistake that names their file") {
  const TempDir folder;
  const auto number = [](char value) { return std::string(3, '\0') + value; };
  const auto write = [&](const std::string& split, char count, char size) {
    std::ofstream(folder / (split + "-images-idx3-ubyte"))
        << number(0).substr(0, 2) << "\x08\x03" << number(count) << number(size) << number(size)
        << std::string(static_cast<std::size_t>(count * size * size), '\0');
    std::ofstream(folder / (split + "-labels-idx1-ubyte"))
        << number(0).substr(0, 2) << "\x08\x01" << number(count) << std::string(static_cast<std::size_t>(count), '\0');
  };
  write("train", 64, 28);
  write("t10k", 10, 20);
  const auto result = run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", config("mnist.cfg"),
                               "--data.dir=" + folder.path().string()});
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun] error: " + (folder / "t10k-images-idx3-ubyte").string() +
                          ": test samples of 1 x 20 x 20, but those to learn from have 1 x 28 x 28\n");
}

TEST_CASE("a mistake that only a step finds is told once, without a failure summary") {
  const TempDir folder;
  for (const char* name : {"train.bin", "val.bin"}) {
    std::ofstream file(folder / name);
    for (int i = 0; i < 1000; ++i) file << std::string{static_cast<char>(i % 4 == 3 ? 70 : i % 4), '\0'};
  }
  const auto result = run_job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=3",
                               config("gpt_nano.cfg"), "--data.name=tokens", "--data.dir=" + folder.path().string(),
                               "--data.vocabulary=50", "--data.context=16"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, Catch::Contains("[ddprun] error: train.bin: token 70 at position ") &&
                             Catch::EndsWith(" is not within the vocabulary of 50\n"));
  CHECK_THAT(result.err, !Catch::Contains("FAILED"));
}

TEST_CASE("each of two nodes prints the mistake once") {
  const Mistake mistake;
  const auto endpoint = "--rdzv_endpoint=127.0.0.1:" + std::to_string(free_port());
  const Words words{DDPRUN_PROGRAM, "--nnodes=2", "--nproc_per_node=2", endpoint, mistake.config};
  Child a(words, one_thread), b(words, one_thread);
  for (auto* node : {&a, &b}) {
    const auto result = node->wait(std::chrono::seconds(60));
    INFO(result.err);
    CHECK(result.code == 2);
    const auto at = result.err.find(mistake.sentence);
    REQUIRE(at != std::string::npos);
    CHECK(result.err.find(mistake.sentence, at + 1) == std::string::npos);
    CHECK(result.err.find("on host " + ddprun::local_host_name() + ")\n", at) != std::string::npos);
    CHECK(result.err.find("FAILED") == std::string::npos);
  }
}

TEST_CASE("without a launcher the worker prints the mistake itself, also where a scheduler set an error file") {
  const Mistake mistake;
  for (const auto& variables : {std::map<std::string, std::string>{},
                                {{"TORCHELASTIC_ERROR_FILE", (mistake.folder / "error.json").string()}}}) {
    const auto result = run_worker({mistake.config}, variables);
    CHECK(result.code == 2);
    CHECK(result.err == "[ddprun-worker] error: " + mistake.sentence + "\n");
  }
}

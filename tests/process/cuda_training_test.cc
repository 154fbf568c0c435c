// Jobs of train.device = cuda, on emulated devices.
#include <csignal>
#include <thread>

#include "tests/process/worker.h"
#include "tests/support/free_port.h"
#include "tests/support/step_records.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

using Variables = std::map<std::string, std::string>;

Variables devices(const std::string& count) {
  return {{"OMP_NUM_THREADS", "1"}, {"DDPRUN_CUDA_EMULATOR", count}, {"DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE}};
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Small, since each thread of a device is a fibre.
struct Model {
  std::string name;
  Words words;  // the configuration, and what makes it small
};
const Words digits{"--data.name=digits",   "--data.samples=320",  "--data.test_samples=16",
                   "--train.batch_size=8", "--eval.batch_size=8", "--train.max_steps=20"};
const std::vector<Model> models{
    {"the CNN", joined({config("mnist.cfg")}, digits)},
    {"the MLP", joined({config("mnist_mlp.cfg"), "--model.hidden=32 16"}, digits)},
};

// A folder with a text, and the small GPT that reads it.
class SmallGpt {
 public:
  SmallGpt() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + " is the square of " + std::to_string(i) + ".\n";
    write_file_atomically(dir_ / "input.txt", text);
  }
  Model model() const {
    return {"a small GPT",
            {config("gpt_nano.cfg"), "--data.dir=" + dir_.path().string(), "--data.context=16", "--model.layers=2",
             "--model.heads=2", "--model.width=16", "--model.context=16", "--train.batch_size=2", "--eval.batch_size=2",
             "--train.max_steps=20", "--optim.warmup=2"}};
  }

 private:
  TempDir dir_;
};

// As one process or as two ranks.
Child::Result train(int ranks, const Words& words, const Variables& variables) {
  const auto program = ranks == 1 ? Words{DDPRUN_WORKER}
                                  : Words{DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=" + std::to_string(ranks)};
  auto result = Child(joined(program, words), variables).wait(std::chrono::seconds(250));
  result.out = without_prefixes(result.out);
  return result;
}

struct Run {
  std::string digest, out;
  std::vector<double> losses;
};

Run run(int ranks, Words words, const std::string& device, const std::string& count = "2") {
  TempDir dir;
  words.push_back("--metrics.file=" + (dir / "m.jsonl").string());
  words.push_back("--train.device=" + device);
  const auto result = train(ranks, words, devices(count));
  return {.digest = digest_of(result), .out = result.out, .losses = read_records(dir / "m.jsonl").losses};
}

}  // namespace

TEST_CASE("models learn on emulated devices what they learn on the CPU, with the same bits in each run") {
  const SmallGpt gpt;
  auto all = models;
  all.push_back(gpt.model());
  for (const auto& [name, words] : all) {
    for (const int ranks : {1, 2}) {
      INFO(name << ", " << ranks << " ranks");
      const auto on_cpu = run(ranks, words, "cpu"), on_device = run(ranks, words, "cuda");
      CHECK(largest_difference(on_cpu.losses, on_device.losses, 20) < 1e-5);
      CHECK(run(ranks, words, "cuda").digest == on_device.digest);
      CHECK_THAT(on_device.out, Catch::Contains("rank 0 trains on cuda:0, an emulated device"));
    }
  }
}

TEST_CASE("train.device = auto takes an emulated device that is asked for, and the CPU where a setting lacks devices") {
  const auto& words = models[1].words;
  CHECK_THAT(run(1, words, "auto").out, Catch::Contains("an emulated device"));
  CHECK_THAT(run(1, joined(words, {"--optim.name=lamb"}), "auto").out, !Catch::Contains("an emulated device"));
}

TEST_CASE("gradients on devices travel in 16 bits with the hooks for that") {
  const auto& words = models[1].words;
  for (const std::string hook : {"fp16", "bf16"}) {
    const auto with_hook = joined(words, {"--parallel.hook=" + hook});
    const auto on_cpu = run(2, with_hook, "cpu"), on_device = run(2, with_hook, "cuda");
    CHECK(largest_difference(on_cpu.losses, on_device.losses, 20) < 1e-2);
    CHECK(on_device.digest != run(2, words, "cuda").digest);
  }
}

TEST_CASE("ranks that share a device stage its memory through the host, and say so") {
  TempDir dir;
  const auto& words = models[1].words;
  const auto result = train(2, joined(words, {"--train.device=cuda"}), devices("1"));
  CHECK_THAT(result.err, Catch::Contains("ranks 0 and 1 share the device 0000:01:00.0, which NCCL refuses"));
  CHECK(digest_of(result) == run(2, words, "cuda").digest);
}

TEST_CASE("a checkpoint of the CPU resumes on a device, and one of a device on the CPU") {
  for (const auto& [first, second] : {std::pair("cpu", "cuda"), std::pair("cuda", "cpu")}) {
    INFO(first << ", then " << second);
    TempDir dir;
    const auto words = joined(models[1].words, {"--checkpoint.dir=" + (dir / "c").string()});
    const auto start = joined(words, {"--train.max_steps=10", "--train.device=" + std::string(first)});
    digest_of(train(2, start, devices("2")));
    const auto resumed = run(2, words, second);
    CHECK_THAT(resumed.out, Catch::Contains("going on from the checkpoint of step 10"));
    CHECK(resumed.losses.size() == 10);
    const auto whole = run(2, models[1].words, "cpu");
    const std::vector<double> rest(whole.losses.begin() + 10, whole.losses.end());
    CHECK(largest_difference(rest, resumed.losses, 10) < 1e-5);
  }
}

TEST_CASE("what does not run on devices is refused in one line") {
  for (const std::string setting : {"--parallel.zero=1", "--parallel.hook=int8", "--optim.name=lamb"}) {
    const auto result = run_worker(joined(models[1].words, {setting, "--train.device=cuda"}), devices("1"));
    CHECK(result.code == 2);
    CHECK_THAT(result.err, Catch::Contains("does not run on devices so far: use cpu"));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
}

TEST_CASE("without a module or a device a job of train.device = cuda says what was looked for") {
  auto nowhere = devices("1");
  nowhere["DDPRUN_CUDA_MODULE"] = "/nowhere/libddprun_cuda.so";
  const auto words = joined(models[1].words, {"--train.device=cuda"});
  const auto without_module = run_worker(words, nowhere);
  CHECK(without_module.code != 0);
  CHECK_THAT(without_module.err, Catch::Contains("there is no CUDA module: looked for /nowhere/libddprun_cuda.so"));
  auto hidden = devices("2");
  hidden["CUDA_VISIBLE_DEVICES"] = "";
  const auto without_device = run_worker(words, hidden);
  CHECK(without_device.code != 0);
  CHECK_THAT(without_device.err, Catch::Contains("CUDA finds no device on host "));
}

TEST_CASE("a rank that is killed while it trains on a device is named with its device and host by the others") {
  TempDir dir;
  const auto metrics = (dir / "m.jsonl").string();
  const auto words = joined(models[1].words, {"--train.max_steps=0", "--train.epochs=1000", "--train.device=cuda",
                                              "--metrics.file=" + metrics});
  const auto port = std::to_string(free_port());
  const auto start = [&](const std::string& rank) {
    auto variables = devices("2");
    variables.insert({{"RANK", rank}, {"LOCAL_RANK", rank}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}});
    variables.insert({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    return std::make_unique<Child>(joined({DDPRUN_WORKER}, words), variables);
  };
  const auto first = start("0"), second = start("1");
  while (!std::filesystem::exists(metrics) || read_records(metrics).losses.size() < 2) std::this_thread::yield();
  second->signal(SIGKILL);
  const auto result = first->wait(std::chrono::seconds(60));
  CHECK(result.code != 0);
  INFO(result.err);
  CHECK(std::regex_search(result.err,
                          std::regex("error: rank 1 \\(cuda:1, pid [0-9]+ on host [^ ]+\\) (has died|was lost)")));
}

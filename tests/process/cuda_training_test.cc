// Jobs of train.device = cuda, on emulated devices.
#include <csignal>
#include <thread>

#include "tests/process/cuda_job.h"
#include "tests/support/free_port.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::vector<Model> models{small_cnn, small_mlp};

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
  CHECK_THAT(result.err, Catch::Contains("ranks 0 and 1 share the device 0000:01:00.0 of host "));
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
  for (const std::string setting : {"--parallel.zero=1", "--parallel.strategy=parameter_server", "--optim.name=lamb"}) {
    const auto result = run_worker(joined(models[1].words, {setting, "--train.device=cuda"}), devices("1"));
    CHECK(result.code == 2);
    CHECK_THAT(result.err, Catch::Contains("it does not go with train.device = cuda: "));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
}

TEST_CASE("a run on a device that diverges names the step at which it did, as on the CPU, and saves nothing of it") {
  TempDir dir;
  const auto words = joined(models[1].words, {"--optim.name=sgd", "--optim.lr=1e30", "--train.log_every=0",
                                              "--checkpoint.dir=" + (dir / "c").string()});
  std::string said;
  for (const std::string device : {"cpu", "cuda"}) {
    const auto result = run_worker(joined(words, {"--train.device=" + device}), devices("1"));
    CHECK(result.code == 1);
    std::smatch step;
    REQUIRE(std::regex_search(result.err, step, std::regex("the loss of step [0-9]+ is [a-z]+")));
    if (said.empty()) said = step.str();
    CHECK(step.str() == said);
    for (const auto& entry : std::filesystem::directory_iterator(dir / "c"))
      CHECK_THAT(entry.path().filename().string(), !Catch::Contains("step_"));
  }
}

TEST_CASE("float32 is multiplied in TF32 where train.tf32 allows it, on devices that have it") {
  const auto with_tf32 = [](const Model& model) { return joined(model.words, {"--train.tf32=true"}); };
  for (const Model& model : models) {
    INFO(model.name);
    const auto exact = run(1, model.words, "cuda"), rounded = run(1, with_tf32(model), "cuda");
    CHECK(rounded.digest != exact.digest);
    CHECK(largest_difference(exact.losses, rounded.losses, 5) < 1e-2);
  }
  const auto refusal = [](const Words& words, const Variables& variables) {
    const auto result = run_worker(words, variables);
    CHECK(result.code == 2);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    return result.err;
  };
  auto old = devices("1");
  old["DDPRUN_CUDA_EMULATOR_CAPABILITY"] = "7.5";
  CHECK_THAT(refusal(joined(with_tf32(models[1]), {"--train.device=cuda"}), old),
             Catch::Contains("train.tf32 = true: TF32 needs compute capability 8.0, cuda:0 has 7.5"));
  CHECK_THAT(refusal(with_tf32(models[1]), devices("1")), Catch::Contains("it needs train.device = cuda or auto"));
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

TEST_CASE("a call that fails at one rank ends the job with an error that names the rank and what has failed") {
  const auto words = joined(models[0].words, {"--train.device=cuda"});
  // Each function, and its name in an error.
  const std::vector<std::pair<std::string, std::string>> calls{
      {"cudaLaunchKernelExC", "the launch of a kernel failed on cuda:1"},
      {"cublasLtMatmul", "failed on cuda:1: cublasLtMatmul returned"},
      {"cudnnConvolutionForward", "failed on cuda:1: cudnnConvolutionForward returned"},
      {"ncclAllReduce", "ncclAllReduce failed on cuda:1: unhandled cuda error (emulated)"}};
  for (const auto& [function, text] : calls) {
    auto variables = devices("2");
    variables["DDPRUN_CUDA_EMULATOR_FAIL"] = function + "@1:7";
    const auto result = train(2, words, variables);
    INFO(function << "\n" << result.err);
    CHECK(result.code != 0);
    CHECK_THAT(result.err, Catch::Contains("local_rank: 1, cuda:1") && Catch::Contains(text));
  }
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

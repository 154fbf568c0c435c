// Jobs of one process on several emulated CUDA devices.
#include "tests/process/cuda_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// "cuda:0 cuda:1"
Words device_list(const std::string& type, int count) {
  std::string names;
  for (int k = 0; k < count; ++k) names += (k > 0 ? " " : "") + type + ":" + std::to_string(k);
  return {"--parallel.devices=" + names};
}

// Another seed gives another order in which the devices' queues run.
Variables seeded(int count, int seed) {
  auto variables = devices(std::to_string(count));
  variables["DDPRUN_CUDA_EMULATOR_SEED"] = std::to_string(seed);
  return variables;
}

// Returns the run with one order of the queues; fails the test if another order gives another result.
Run run_on_devices(const Words& words, int count) {
  const auto on_devices = joined(words, device_list("cuda", count));
  auto first = run(1, on_devices, seeded(count, 1));
  for (const int seed : {2, 3}) CHECK(run(1, on_devices, seeded(count, seed)).digest == first.digest);
  return first;
}

Run run_on_cpu(const Words& words, int count) {
  return run(1, joined(words, device_list("cpu", count)), one_thread);
}

const Words data_parallel{"--parallel.strategy=data_parallel"};
const Model norms{"a CNN with batch norm",
                  joined({config("cnn_bn.cfg")}, joined(digits, {"--train.max_steps=5", "--data.test_samples=8"}))};

struct Form {
  std::string name;
  Words words;
  int devices = 2;
};

// The modules of the MLP are fc1, fc2, fc3.
std::vector<Form> forms_of_mlp() {
  const auto of = [](const Words& words) { return joined(small_mlp.words, words); };
  return {{"replicas", of(data_parallel)},
          {"three replicas", of(data_parallel), 3},
          {"parts", of({"--parallel.split=fc2"})},
          {"all on the second device", of({"--parallel.split=fc1"})},
          {"three parts", of({"--parallel.split=fc2 fc3", "--optim.clip_norm=1"}), 3},
          {"a pipeline", of({"--parallel.split=fc2", "--parallel.micro_batches=4"})},
          {"a pipeline without bubbles",
           of({"--parallel.split=fc2 fc3", "--parallel.micro_batches=4", "--parallel.schedule=zero_bubble"}), 3}};
}

void check_learns_as_on_cpu(const Form& form, std::size_t steps) {
  INFO(form.name << " on " << form.devices << " devices");
  const auto expected = run_on_cpu(form.words, form.devices), found = run_on_devices(form.words, form.devices);
  CHECK(largest_difference(expected.losses, found.losses, steps) < 1e-5);
  for (int k = 0; k < form.devices; ++k)
    CHECK_THAT(found.out, Catch::Contains("cuda:" + std::to_string(k) + ", an emulated device"));
}

}  // namespace

TEST_CASE("an MLP learns on the devices of a process what it learns on those of the CPU, in any order of the queues") {
  for (const Form& form : forms_of_mlp()) check_learns_as_on_cpu(form, 20);
}

TEST_CASE("replicas with batch norm on devices learn what they learn on the CPU") {
  check_learns_as_on_cpu({"replicas", joined(norms.words, data_parallel)}, 5);
}

TEST_CASE("the stages of a GPT on devices share its embedding") {
  const SmallGpt gpt;
  const auto words =
      joined(gpt.model().words, {"--parallel.split=h.1", "--parallel.micro_batches=2", "--train.max_steps=8"});
  check_learns_as_on_cpu({"a pipeline", words}, 8);
}

TEST_CASE("a model has the bits of one device in each precision, wherever it is divided") {
  // The first scale is too large, so that the first steps change nothing.
  const Words scaled{"--train.precision=fp16", "--train.loss_scale=1e9", "--train.loss_scale_backoff=0.1",
                     "--train.ema=0.9"};
  for (const Words& precision : {Words{"--train.precision=fp32"}, Words{"--train.precision=bf16"}, scaled}) {
    INFO(precision[0]);
    const auto words = joined(small_mlp.words, joined(precision, {"--train.max_steps=10"}));
    const auto parts = joined(words, {"--parallel.split=fc2"});
    CHECK(run_on_devices(parts, 2).digest == run(1, words, "cuda").digest);
    const auto stages = joined(parts, {"--parallel.micro_batches=4"});
    const auto alone = joined(words, {"--train.batch_size=2", "--train.accumulate=4"});
    CHECK(run_on_devices(stages, 2).digest == run(1, alone, "cuda").digest);
  }
}

TEST_CASE("replicas in 16 bits on devices learn what they learn on the CPU") {
  for (const std::string precision : {"bf16", "fp16"}) {
    INFO(precision);
    const auto words = joined(small_mlp.words, joined(data_parallel, {"--train.precision=" + precision}));
    CHECK(largest_difference(run_on_cpu(words, 2).losses, run_on_devices(words, 2).losses, 20) < 1e-2);
  }
}

TEST_CASE("a checkpoint of a job on several devices resumes on the CPU, and one of the CPU on several devices") {
  const Words replicas = joined(data_parallel, device_list("cuda", 2));
  const Words stages = joined(device_list("cuda", 2), {"--parallel.split=fc2", "--parallel.micro_batches=4"});
  const Words cpu;
  const auto whole = run(1, small_mlp.words, one_thread);
  const std::vector<double> rest(whole.losses.begin() + 10, whole.losses.end());
  for (const auto& [first, second] : {std::pair(replicas, cpu), std::pair(cpu, replicas), std::pair(stages, replicas),
                                      std::pair(cpu, stages), std::pair(stages, cpu)}) {
    TempDir dir;
    const auto words = joined(small_mlp.words, {"--checkpoint.dir=" + (dir / "c").string()});
    digest_of(train(1, joined(joined(words, first), {"--train.max_steps=10"}), devices("2")));
    const auto resumed = run(1, joined(words, second), devices("2"));
    CHECK_THAT(resumed.out, Catch::Contains("going on from the checkpoint of step 10"));
    REQUIRE(resumed.losses.size() == 10);
    CHECK(largest_difference(rest, resumed.losses, 10) < 1e-5);
  }
}

TEST_CASE("the model of a job on several devices is evaluated and asked for predictions") {
  TempDir dir;
  const auto folder = Words{"--checkpoint.dir=" + (dir / "c").string(), "--eval.every_epochs=1"};
  const auto words = joined(joined(small_mlp.words, folder), joined(device_list("cuda", 2), {"--parallel.split=fc2"}));
  const auto on_devices = train(1, words, devices("2"));
  CHECK(accuracy_of(on_devices) == accuracy_of(train(1, small_mlp.words, one_thread)));
  const auto predicted = run_worker(joined({"predict"}, words), devices("2"));
  INFO(predicted.err);
  CHECK(predicted.code == 0);
  CHECK(std::count(predicted.out.begin(), predicted.out.end(), '\n') == 17);  // a heading and the samples
}

TEST_CASE("what several devices cannot do is refused in one line before training") {
  struct Case {
    Words words;
    std::string reason;
    Words command{};
  };
  const Words two{"--parallel.devices=cuda:0,cuda:1"};
  const std::vector<Case> cases{
      {{"--parallel.devices=cuda:0,cuda:2"},
       "parallel.devices = cuda:0,cuda:2: there is no cuda:2: this process has 2"},
      {{"--parallel.devices=cuda:5"}, "parallel.devices = cuda:5: there is no cuda:5: this process has 2 CUDA devices"},
      {{"--parallel.devices=cuda:0 cpu:1"}, "devices are all of the CPU or all of CUDA"},
      {{"--parallel.devices=cuda:1 cuda:1"}, "cuda:1 is named twice"},
      {{"--parallel.devices=cuda:0 gpu:1"}, "'gpu:1' is not a device"},
      {joined(two, {"--train.device=cpu"}), "parallel.devices = cuda:0,cuda:1 are CUDA devices"},
      {{"--parallel.devices=cpu:0 cpu:1", "--train.device=cuda"}, "train.device = cuda takes CUDA devices"},
      {joined(two, {"--parallel.hook=fp16"}), "it does not go with parallel.devices = cuda:0,cuda:1: "},
      {joined(two, {"--train.quantization_aware=true"}),
       "train.quantization_aware = true: it does not go with train.device"},
      {two, "plan measures the CPU so far", {"plan"}},
      {two, "profile measures one device so far", {"profile"}}};
  for (const auto& [words, reason, command] : cases) {
    INFO(reason);
    const auto result = run_worker(joined(command, joined(small_mlp.words, words)), devices("2"));
    CHECK(result.code == 2);
    CHECK_THAT(result.err, Catch::Contains(reason));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK_THAT(result.out, !Catch::Contains("step "));
  }
}

TEST_CASE("a fault of one device ends the job on all of them, and is named") {
  const auto words = joined(small_mlp.words, device_list("cuda", 2));
  const std::vector<Words> forms{
      data_parallel, {"--parallel.split=fc2"}, {"--parallel.split=fc2", "--parallel.micro_batches=4"}};
  for (const std::string function : {"cudaMemcpyPeerAsync", "cudaLaunchKernelExC", "cudaStreamWaitEvent"}) {
    auto variables = devices("2");
    variables["DDPRUN_CUDA_EMULATOR_FAIL"] = function + ":30";
    for (const Words& form : forms) {
      INFO(function << ", " << form.back());
      const auto result = run_worker(joined(words, form), variables);
      CHECK(result.code == 1);
      CHECK_THAT(result.err, Catch::Contains("error: ") && Catch::Contains("failed on cuda:"));
    }
  }
}

TEST_CASE("CUDA devices are named for one process alone") {
  const auto result = train(2, joined(small_mlp.words, device_list("cuda", 2)), devices("2"));
  CHECK(result.code == 2);
  CHECK_THAT(result.err, Catch::Contains("CUDA devices are named for a job of one process, this one has 2"));
}

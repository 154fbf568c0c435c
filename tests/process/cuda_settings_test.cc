// Settings of jobs of train.device = cuda, on emulated devices: each does what it does on the CPU.
#include <set>

#include "tests/process/cuda_job.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const Words short_digits = joined(digits, {"--train.batch_size=4", "--train.max_steps=6", "--data.test_samples=8"});
const Model norms{"a CNN with batch norm", joined({config("cnn_bn.cfg")}, short_digits)};
const Model mlp{"the MLP", joined(small_mlp.words, {"--train.max_steps=10"})};

struct Setting {
  Words words;
  Model model = mlp;
  int ranks = 2;
  double bound = 1e-5;
};

// Runs the job on the CPU and on devices, there twice. Returns the digest of the devices.
std::string check_same_on_devices(const Setting& setting) {
  INFO(setting.words.front());
  const auto words = joined(setting.model.words, setting.words);
  const auto on_cpu = run(setting.ranks, words, "cpu"), on_device = run(setting.ranks, words, "cuda");
  CHECK(largest_difference(on_cpu.losses, on_device.losses, on_cpu.losses.size()) < setting.bound);
  CHECK(run(setting.ranks, words, "cuda").digest == on_device.digest);
  return on_device.digest;
}

std::string error_in(const std::string& text) {
  return text.substr(std::min(text.size(), text.find("error: ")));
}

}  // namespace

TEST_CASE("communication hooks that work on the host average the gradients of devices") {
  std::set<std::string> digests{run(2, mlp.words, "cuda").digest};
  const std::string low_rank_from = "--parallel.start_powerSGD_iter=2";
  digests.insert(check_same_on_devices({{"--parallel.hook=topk"}}));
  digests.insert(check_same_on_devices({{"--parallel.hook=powersgd", low_rank_from}}));
  digests.insert(check_same_on_devices({{"--parallel.hook=onebit", "--parallel.freeze_step=5"}}));
  // A gradient with another last bit may be rounded to another number.
  for (const Words& words : {Words{"--parallel.hook=int8"}, Words{"--parallel.hook=int4"},
                             Words{"--parallel.hook=fp16+powersgd", low_rank_from}})
    digests.insert(check_same_on_devices({words, mlp, 2, 1e-3}));
  CHECK(digests.size() == 7);
}

TEST_CASE("ranks that average their parameters now and then do so on devices") {
  const Words now_and_then{"--parallel.strategy=local_sgd", "--parallel.local_sgd_period=3"};
  const Words with_outer =
      joined(now_and_then, {"--parallel.outer_lr=0.7", "--parallel.outer_momentum=0.9", "--parallel.fragments=2"});
  const auto plain = check_same_on_devices({now_and_then}), outer = check_same_on_devices({with_outer});
  const auto delayed = check_same_on_devices({joined(with_outer, {"--parallel.fragment_sync_delay=1"})});
  CHECK(std::set<std::string>{run(2, mlp.words, "cuda").digest, plain, outer, delayed}.size() == 4);
  check_same_on_devices({now_and_then, norms});
}

TEST_CASE("batch norm over all ranks, and of each rank alone, on devices") {
  check_same_on_devices({{"--parallel.sync_batch_norm=true"}, norms});
  check_same_on_devices({{"--parallel.broadcast_buffers=false"}, norms});
}

TEST_CASE("what each rank has for itself on a device is in the checkpoint, which resumes on the CPU and back") {
  for (const auto& own : {Setting{{"--parallel.broadcast_buffers=false"}, norms},
                          Setting{{"--parallel.ignored_parameters=fc2.bias"}, mlp},
                          Setting{{"--parallel.strategy=local_sgd", "--parallel.local_sgd_period=2",
                                   "--parallel.outer_lr=0.7", "--parallel.outer_momentum=0.9"},
                                  mlp}})
    for (const auto& [first, second] : {std::pair("cuda", "cpu"), std::pair("cpu", "cuda")}) {
      INFO(own.words.front() << ": " << first << ", then " << second);
      TempDir dir;
      const auto job = joined(own.model.words, own.words);
      const auto words = joined(job, {"--checkpoint.dir=" + (dir / "c").string()});
      digest_of(train(2, joined(words, {"--train.max_steps=3", std::string("--train.device=") + first}), devices("2")));
      const auto resumed = run(2, words, second);
      CHECK_THAT(resumed.out, Catch::Contains("going on from the checkpoint of step 3"));
      const auto whole = run(2, job, "cpu");
      const std::vector<double> rest(whole.losses.begin() + 3, whole.losses.end());
      CHECK(largest_difference(rest, resumed.losses, rest.size()) < 1e-5);
    }
}

TEST_CASE("parameters that are ignored are trained by each rank on its device") {
  check_same_on_devices({{"--parallel.ignored_parameters=fc2.bias"}});
}

TEST_CASE("a teacher computes where its student does") {
  TempDir dir;
  const auto teacher = joined(mlp.words, {"--checkpoint.dir=" + (dir / "c").string(), "--train.device=cpu"});
  digest_of(train(1, teacher, devices("2")));
  std::filesystem::path weights;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir / "c"))
    if (file.path().filename() == "model.safetensors") weights = file.path();
  check_same_on_devices({{"--train.task=distillation", "--distill.teacher=mlp", "--distill.hidden=32 16",
                          "--distill.weights=" + weights.string()}});
}

TEST_CASE("a NaN on a device is traced to its operation") {
  check_same_on_devices({{"--train.detect_anomaly=true"}, mlp, 1});
  const auto words = joined(mlp.words, {"--train.detect_anomaly=true", "--optim.lr=1e37"});
  std::vector<std::string> errors;
  for (const std::string device : {"cpu", "cuda"}) {
    const auto result = train(1, joined(words, {"--train.device=" + device}), devices("1"));
    CHECK(result.code != 0);
    errors.push_back(error_in(result.err));
  }
  const std::string cause = errors[0].substr(std::string("error: ").size());
  CHECK_THAT(cause, Catch::Contains("produced a NaN or an infinity"));
  CHECK_THAT(errors[1], Catch::StartsWith("error: rank 0 (cuda:0) on host ") && Catch::EndsWith(": " + cause));
}

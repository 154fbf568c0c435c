#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "worker/data/distributed_sampler.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensor_files.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// Returns a job on generated digits, with further lines of a train.cfg.
std::string digits_job(const TempDir& dir, const std::string& name, const std::string& more) {
  return "[data]\nname = digits\nsamples = 6400\ntest_samples = 200\n[metrics]\nfile = " + (dir / name).string() +
         "\n" + more;
}

std::vector<double> losses_of(const TempDir& dir, int ranks, const std::string& more) {
  TrainingJob(digits_job(dir, "losses", more)).run(ranks);
  return losses_in(dir / "losses");
}

// Returns the largest relative difference within the first `steps` steps.
double difference(const std::vector<double>& a, const std::vector<double>& b, std::size_t steps) {
  REQUIRE(a.size() >= steps);
  REQUIRE(b.size() >= steps);
  double largest = 0;
  for (std::size_t i = 0; i < steps; ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(a[i]));
  return largest;
}

// Returns how the trained samples deviate from the beginning of an epoch's order; empty when they do not.
std::string deviation(const std::vector<std::int64_t>& trained, const std::vector<std::int64_t>& order) {
  std::map<std::int64_t, int> times;
  for (const auto index : trained) ++times[index];
  std::string text;
  for (std::size_t p = 0; p < order.size(); ++p) {
    const int expected = p < trained.size() ? 1 : 0;
    if (times[order[p]] != expected)
      text += "position " + std::to_string(p) + ": " + std::to_string(times[order[p]]) + " times; ";
  }
  return text;
}

const std::string adam = "[optim]\nname = adam\nlr = 1e-3\n";
const std::string sgd = "[optim]\nname = sgd\nlr = 0.01\nmomentum = 0.9\n";
const std::string one_rank = "[train]\nmax_steps = 50\nbatch_size = 128\n";
const std::string two_ranks = "[train]\nmax_steps = 50\nbatch_size = 64\ncheck_replicas = true\n";

}  // namespace

TEST_CASE("two ranks with batch 64 learn as one with batch 128") {
  TempDir dir;
  SECTION("Adam") {
    // With this seed no two values of a pooling window are as close as rounding: otherwise the other one would get the
    // gradient, and Adam makes steps of one size from gradients of any size.
    const std::string seed = "seed = 3\n";
    const auto one = losses_of(dir, 1, adam + one_rank + seed);
    const auto two = losses_of(dir, 2, adam + two_ranks + seed);
    CHECK(difference(one, two, 10) < 1e-6);
    CHECK(difference(one, two, 50) < 1e-3);
    CHECK(one[49] < one[0]);
  }
  SECTION("SGD") {
    const auto one = losses_of(dir, 1, sgd + one_rank);
    const auto two = losses_of(dir, 2, sgd + two_ranks);
    CHECK(difference(one, two, 10) < 1e-6);
    CHECK(difference(one, two, 50) < 1e-5);
  }
}

TEST_CASE("what is divided among the ranks learns as one rank does") {
  TempDir dir;
  // The seed is chosen as for Adam above, at every number of threads.
  const std::string same_batch = "[train]\nmax_steps = 50\nglobal_batch_size = 128\ncheck_replicas = true\nseed = 1\n";
  SECTION("SGD, clipped") {
    const std::string clipped = sgd + "clip_norm = 0.5\n" + same_batch;
    const auto one = losses_of(dir, 1, clipped);
    for (const char* zero : {"zero = 1\n", "zero = 2\n", "zero = 3\n"}) {
      for (const int ranks : {1, 2, 4}) {
        INFO(zero << ranks << " ranks");
        const auto divided = losses_of(dir, ranks, clipped + "[parallel]\n" + zero);
        CHECK(difference(one, divided, 10) < 1e-6);
        CHECK(difference(one, divided, 50) < 1e-5);
      }
    }
    for (const char* zero : {"zero = 2\n", "zero = 3\n", "zero = 3\nreshard_after_forward = false\n"}) {
      INFO(zero << "in groups of two ranks");
      const auto divided = losses_of(dir, 4, clipped + "[parallel]\nshard_group = 2\n" + zero);
      CHECK(difference(one, divided, 10) < 1e-6);
      CHECK(difference(one, divided, 50) < 1e-5);
    }
  }
  SECTION("AdamW with groups, under float16") {
    const std::string job = "[optim]\nname = adamw\nweight_decay = 0.1\ndecay_one_dimensional = false\n" + same_batch +
                            "precision = fp16\nloss_scale = 1e8\nloss_scale_growth_interval = 4\n";
    const auto whole = losses_of(dir, 2, job);
    for (const char* zero : {"zero = 1\n", "zero = 2\n", "zero = 3\n"}) {
      INFO(zero);
      CHECK(difference(whole, losses_of(dir, 2, job + "[parallel]\n" + zero), 50) < 1e-5);
    }
  }
}

TEST_CASE("what is divided among the ranks learns over micro-batches, of which ranks may have fewer or none") {
  // 107 samples: steps of 20, then one of 7, in which some of four ranks have one micro-batch, and one of eight none.
  TempDir dir;
  const auto losses = [&](int ranks, const std::string& more) {
    TrainingJob("[data]\nname = random\nsamples = 107\ntest_samples = 9\n[model]\nname = mlp\nhidden = 12\n" + sgd +
                "[metrics]\nfile = " + (dir / "m").string() +
                "\n[train]\nepochs = 3\nglobal_batch_size = 20\ncheck_replicas = true\n" + more)
        .run(ranks);
    return losses_in(dir / "m");
  };
  const auto one = losses(1, "");
  for (const std::string zero : {"2", "3"}) {
    for (const int ranks : {1, 3, 4, 8}) {
      INFO("zero = " << zero << ", " << ranks << " ranks");
      CHECK(difference(one, losses(ranks, "accumulate = 3\n[parallel]\nzero = " + zero + "\n"), 18) < 1e-5);
    }
  }
}

TEST_CASE("a checkpoint of one layout goes on under any other, and at another number of ranks") {
  TempDir dir;
  // Adam with its usual eps makes steps of one size even from gradients that are nothing but rounding.
  const std::string job = adam + "eps = 1e-3\n[train]\nglobal_batch_size = 128\nseed = 1\n";
  const auto whole = losses_of(dir, 1, job + "max_steps = 40\n");
  const std::pair<int, const char*> layouts[] = {{4, "zero = 1\n"},
                                                 {1, ""},
                                                 {3, "zero = 1\n"},
                                                 {4, "zero = 3\n"},
                                                 {1, ""},
                                                 {2, "zero = 2\n"},
                                                 {4, "zero = 3\nshard_group = 2\n"},
                                                 {3, "zero = 3\n"}};
  std::vector<double> resumed;
  for (std::size_t i = 0; i < std::size(layouts); ++i) {
    const auto& [ranks, zero] = layouts[i];
    resumed = losses_of(dir, ranks,
                        job + "max_steps = " + std::to_string(5 * (i + 1)) + "\n[parallel]\n" + zero +
                            "[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
  }
  CHECK(difference(whole, resumed, 10) < 1e-6);
  CHECK(difference(whole, resumed, 40) < 1e-3);
}

TEST_CASE("devices of a process learn as one device does") {
  TempDir dir;
  const std::string job = sgd + "[train]\nmax_steps = 50\nglobal_batch_size = 64\ncheck_replicas = true\n";
  const auto one = losses_of(dir, 1, job);
  const std::string replicas = "[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cpu:1\n";
  for (const int ranks : {1, 2}) {
    const auto divided = losses_of(dir, ranks, job + replicas);
    CHECK(difference(one, divided, 10) < 1e-6);
    CHECK(difference(one, divided, 50) < 1e-5);
  }
  CHECK(one == losses_of(dir, 1, job + "[parallel]\ndevices = cpu:0 cpu:1\nsplit = fc1\n"));
}

TEST_CASE("a model that is trained to be quantized has replicas on devices, with the ranges of the first") {
  TempDir dir;
  const std::string job = sgd + "[train]\nmax_steps = 20\nglobal_batch_size = 64\ncheck_replicas = true\n";
  const std::string quantized = "quantization_aware = true\n";
  const auto one = losses_of(dir, 1, job + quantized);
  for (const int ranks : {1, 2}) {
    const auto divided =
        losses_of(dir, ranks, job + quantized + "[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cpu:1\n");
    CHECK(divided[19] < divided[0]);
    CHECK(difference(one, divided, 20) < 1e-2);
    CHECK(difference(losses_of(dir, 1, job), divided, 20) > 1e-7);
  }
}

TEST_CASE("a model whose parts are on two devices has the bits of one device, wherever it is cut") {
  TempDir dir;
  const std::string job = "[model]\nname = two_part_resnet\n[train]\nmax_steps = 6\nbatch_size = 8\n" + adam;
  const auto digest = [&](int ranks, const std::string& more) {
    return TrainingJob(digits_job(dir, "m", job + more)).run(ranks)[0].parameter_digest;
  };
  for (const int ranks : {1, 2}) {
    const auto one = digest(ranks, "");
    CHECK(digest(ranks, "[parallel]\ndevices = cpu:0 cpu:1\nsplit = part2\n") == one);
    CHECK(digest(ranks, "[parallel]\ndevices = cpu:0 cpu:1\n") == one);
    CHECK(digest(ranks, "[parallel]\ndevices = cpu:1 cpu:0\nsplit = part2\n") == one);
    CHECK(digest(ranks, "[parallel]\ndevices = cpu:1\n") == one);
  }
  CHECK_THROWS_WITH(digest(1, "[parallel]\ndevices = cpu:0 cpu:1\nsplit = part3\n"),
                    Catch::Contains("parallel.split = part3") && Catch::Contains("part1, part2"));
}

TEST_CASE("a GPT learns with two ranks as with one") {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text, ";
  std::ofstream(dir / "input.txt") << text;
  const auto run = [&](int ranks, const std::string& more = {}) {
    TrainingJob("[model]\nname = gpt\nlayers = 2\nwidth = 32\nheads = 2\n[data]\nname = text\ncontext = 32\ndir = " +
                dir.path().string() + "\n[metrics]\nfile = " + (dir / "m").string() +
                "\n[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\n[train]\nmax_steps = 50\nglobal_batch_size = 16\n" +
                more)
        .run(ranks);
    return losses_in(dir / "m");
  };
  const auto one = run(1), two = run(2);
  CHECK(difference(one, two, 10) < 1e-6);
  CHECK(difference(one, two, 50) < 1e-5);
  CHECK(one[49] < one[0] - 0.5);
  const std::string divided = "recompute = blocks\n[parallel]\nzero = 3\n";
  CHECK(difference(one, run(4, divided), 50) < 1e-5);
}

TEST_CASE("a transformer learns with two ranks as with one") {
  TempDir dir;
  const auto run = [&](int ranks, const std::string& more = {}) {
    TrainingJob(
        "[model]\nname = transformer\nlayers = 2\nwidth = 32\nheads = 2\n[data]\nname = digits\n"
        "samples = 800\ntest_samples = 40\n[metrics]\nfile = " +
        (dir / "m").string() +
        "\n[optim]\nname = sgd\nlr = 0.05\nmomentum = 0.9\n[train]\nmax_steps = 50\nglobal_batch_size = 16\n" + more)
        .run(ranks);
    return losses_in(dir / "m");
  };
  const auto one = run(1), two = run(2);
  CHECK(difference(one, two, 10) < 1e-6);
  CHECK(difference(one, two, 50) < 1e-5);
  CHECK(one[49] < one[0] - 0.5);
  CHECK(difference(one, run(4, "recompute = blocks\n[parallel]\nzero = 3\n"), 50) < 1e-5);
}

TEST_CASE("four micro-batches of 32 learn as one batch of 128, over two ranks too") {
  TempDir dir;
  const auto whole = losses_of(dir, 1, sgd + one_rank);
  const auto parts = losses_of(dir, 1, sgd + "[train]\nmax_steps = 50\nbatch_size = 32\naccumulate = 4\n");
  const auto shared = losses_of(dir, 2, sgd + "[train]\nmax_steps = 50\nbatch_size = 16\naccumulate = 4\n");
  CHECK(difference(whole, parts, 50) < 1e-5);
  CHECK(difference(whole, shared, 50) < 1e-5);
}

TEST_CASE("a short last step weighs its samples alike") {
  // 100 samples a rank give a step of 2 x 30, then one of 30 + 10.
  const std::string data = "[data]\nname = random\nsamples = 200\ntest_samples = 10\n[model]\nname = linear\n";
  TempDir dir;
  const auto run = [&](int ranks, const std::string& train) {
    TrainingJob(data + "[optim]\nname = sgd\nlr = 0.05\n[metrics]\nfile = " + (dir / "m").string() +
                "\n[train]\nepochs = 3\n" + train)
        .run(ranks);
    return losses_in(dir / "m");
  };
  const auto parts = run(2, "batch_size = 30\naccumulate = 2\n");
  const auto whole = run(1, "batch_size = 120\n");
  REQUIRE(parts.size() == 6);
  CHECK(difference(whole, parts, 6) < 1e-5);
}

TEST_CASE("the same job twice gives the same bits, another seed others") {
  TempDir dir;
  const std::string model = "[model]\nname = mlp\nhidden = 32\ndropout = 0.2\n" + adam;
  const auto digest = [&](int ranks, const std::string& train) {
    const auto summaries = TrainingJob(digits_job(dir, "m", model + "[train]\nmax_steps = 20\n" + train)).run(ranks);
    for (const auto& summary : summaries) CHECK(summary.parameter_digest == summaries[0].parameter_digest);
    return summaries[0].parameter_digest;
  };
  CHECK(digest(2, "") == digest(2, ""));
  CHECK(digest(2, "") != digest(2, "seed = 1\n"));
  CHECK(digest(2, "") != digest(1, ""));
}

// Without a change of the parameters, the result of an evaluation depends only on its samples.
TEST_CASE("augmentation changes training samples and no test samples") {
  TempDir dir;
  const auto run = [&](const std::string& augmentation) {
    const auto summary =
        TrainingJob(
            digits_job(dir, "m", "[optim]\nname = sgd\nlr = 0\n[data]\n" + augmentation + "[train]\nmax_steps = 3\n"))
            .run(1)[0];
    return std::pair(losses_in(dir / "m"), summary.evaluation.loss);
  };
  const auto plain = run("");
  for (const auto* augmentation : {"crop_padding = 4\n", "flip = true\n", "cutout = 8\n", "mixup = 1\n"}) {
    INFO(augmentation);
    const auto changed = run(augmentation);
    for (std::size_t step = 0; step < 3; ++step) CHECK(plain.first[step] != changed.first[step]);
    CHECK(plain.second == changed.second);
  }
}

TEST_CASE("augmented samples do not depend on ranks, loader threads or a resume") {
  TempDir dir;
  const std::string augmentation = "[data]\ncrop_padding = 4\nflip = true\ncutout = 8\nmixup = 0.4\n";
  const auto losses = [&](int ranks, const std::string& more) {
    return losses_of(dir, ranks, sgd + augmentation + more);
  };
  CHECK(difference(losses(1, one_rank), losses(2, two_ranks), 50) < 1e-5);
  CHECK(losses(2, two_ranks) == losses(2, "workers = 0\n" + two_ranks));
  CHECK(losses(2, two_ranks) == losses(2, "workers = 3\n" + two_ranks));

  const std::string checkpoints = "[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n";
  const auto whole = losses(2, "[train]\nmax_steps = 9\nbatch_size = 64\n");
  losses(2, "[train]\nmax_steps = 4\nbatch_size = 64\n" + checkpoints);
  CHECK(losses(2, "[train]\nmax_steps = 9\nbatch_size = 64\n" + checkpoints) == whole);
}

TEST_CASE("a language model learns in 16 bits as in 32, within 1 % of the loss, and with the same bits twice") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 600; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text, ";
  std::ofstream(dir / "input.txt") << text;
  const auto run = [&](const std::string& precision) {
    return TrainingJob(
               "[model]\nname = gpt\nlayers = 2\nwidth = 32\nheads = 2\n[data]\nname = text\ncontext = 32\ndir = " +
               dir.path().string() +
               "\n[optim]\nlr = 0.003\n[train]\nbatch_size = 8\nmax_steps = 30\nprecision = " + precision + "\n")
        .run(2)[0];
  };
  const auto wide = run("fp32");
  CHECK(wide.evaluation.loss < 4);
  for (const char* precision : {"bf16", "fp16"}) {
    const auto narrow = run(precision);
    CHECK(narrow.evaluation.loss == Approx(wide.evaluation.loss).epsilon(0.01));
    CHECK(narrow.parameter_digest != wide.parameter_digest);
    CHECK(run(precision).parameter_digest == narrow.parameter_digest);
  }
}

TEST_CASE("what is computed again does not change the bits of a run, over two ranks and micro-batches") {
  TempDir dir;
  const auto digest = [&](const std::string& model, const std::string& recompute) {
    return TrainingJob(digits_job(dir, "m",
                                  "[model]\n" + model + "[train]\nbatch_size = 4\naccumulate = 2\nmax_steps = 3\n" +
                                      "recompute = " + recompute + "\n[eval]\nevery_epochs = 0\n"))
        .run(2)[0]
        .parameter_digest;
  };
  const std::string mlp = "name = mlp\nhidden = 16 16\ndropout = 0.2\n", resnet = "name = resnet18\nchannels = 8\n";
  CHECK(digest(mlp, "all") == digest(mlp, "none"));
  const auto plain = digest(resnet, "none");
  for (const char* recompute : {"blocks", "all"}) CHECK(digest(resnet, recompute) == plain);
}

TEST_CASE("a run that stopped and went on has the bits of one that never stopped") {
  const std::string model =
      "[model]\nname = mlp\nhidden = 32 16\ndropout = 0.2\n" + adam + "[eval]\nevery_epochs = 2\n";
  // 6400 samples give 50 steps an epoch for two ranks with batch 64.
  const auto job = [&](const TempDir& dir, std::int64_t steps) {
    return digits_job(dir, "metrics",
                      model + "[train]\nepochs = 3\nmax_steps = " + std::to_string(steps) +
                          "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\nevery_steps = 20\n");
  };
  TempDir undisturbed;
  const auto expected = TrainingJob(job(undisturbed, 130)).run(2)[0];
  const auto losses = losses_in(undisturbed / "metrics");
  REQUIRE(losses.size() == 130);

  for (const std::vector<std::int64_t>& stops :
       {std::vector<std::int64_t>{1, 49, 50, 51, 130}, {20, 100, 129, 130, 130}}) {
    TempDir dir;
    trainer::Summary last;
    for (const auto stop : stops) last = TrainingJob(job(dir, stop)).run(2)[0];
    CHECK(last.steps == 130);
    CHECK(last.parameter_digest == expected.parameter_digest);
    CHECK(last.evaluation.loss == expected.evaluation.loss);
    CHECK(losses_in(dir / "metrics") == losses);
  }
}

TEST_CASE("quantization-aware training has the same bits twice, after a stop and with what is computed again") {
  const auto job = [](const TempDir& dir, std::int64_t steps, const std::string& more = "quantization_aware = true\n") {
    return digits_job(dir, "metrics",
                      "[model]\nname = cnn_bn\n" + adam + "[eval]\nevery_epochs = 0\n[train]\nbatch_size = 16\n" +
                          "max_steps = " + std::to_string(steps) + "\n" + more +
                          "[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
  };
  const auto model_file = [](const TempDir& dir) {
    return read_whole_file(dir / "checkpoints/step_000012/model.safetensors");
  };
  TempDir one, two, recomputed, plain;
  const auto expected = TrainingJob(job(one, 12)).run(2)[0];
  TrainingJob(job(two, 5)).run(2);
  const auto resumed = TrainingJob(job(two, 12)).run(2)[0];
  CHECK(resumed.parameter_digest == expected.parameter_digest);
  CHECK(model_file(two) == model_file(one));  // with the ranges
  CHECK(losses_in(two / "metrics") == losses_in(one / "metrics"));
  CHECK(TrainingJob(job(recomputed, 12, "quantization_aware = true\nrecompute = all\n")).run(2)[0].parameter_digest ==
        expected.parameter_digest);
  CHECK(model_file(recomputed) == model_file(one));
  CHECK(TrainingJob(job(plain, 12, "")).run(2)[0].parameter_digest != expected.parameter_digest);
}

TEST_CASE("what each rank has for itself is the same after a stop") {
  const std::string batch = "[train]\nbatch_size = 16\n";
  const std::string quantized = "[train]\nquantization_aware = true\n", own = "[parallel]\nbroadcast_buffers = false\n";
  const std::string ignored = batch + "[parallel]\nignored_parameters = conv1.weight bn1.running_mean\n";
  const std::string stages = "[parallel]\npipeline = 2\nmicro_batches = 2\nsplit = fc1\n";
  const auto more = GENERATE_COPY(
      batch + quantized + "accumulate = 2\n", quantized + "accumulate = 3\nglobal_batch_size = 90\n",
      batch + quantized + own, batch + quantized + "accumulate = 2\n" + own, batch + quantized + own + "zero = 1\n",
      batch + quantized + own + "zero = 2\n", batch + quantized + own + "hook = powersgd\nstart_powerSGD_iter = 2\n",
      ignored, ignored + "[parallel]\nzero = 1\n[train]\nema = 0.9\n", ignored + "[parallel]\nzero = 2\n",
      ignored + "[parallel]\nzero = 3\n[optim]\nskip_outliers = 1.01\n", ignored + "[train]\nema = 0.9\n",
      ignored + "[optim]\nclip_norm = 0.5\n", ignored + "[optim]\nskip_outliers = 1.01\n",
      ignored + "[train]\nprecision = fp16\nloss_scale = 1e7\nloss_scale_growth_interval = 2\n",
      stages + batch + quantized, stages + batch + quantized + own,
      stages + batch + quantized + own + "hook = powersgd\nstart_powerSGD_iter = 2\n",
      stages + batch + own + "zero = 3\n", stages + ignored + "[train]\nema = 0.9\n",
      stages + ignored + "[optim]\nclip_norm = 0.5\n", stages + ignored + "[optim]\nskip_outliers = 1.01\n",
      stages + ignored + "[train]\nprecision = fp16\nloss_scale = 1e7\nloss_scale_growth_interval = 2\n",
      stages + ignored + "[parallel]\nhook = int4\n");
  INFO(more);
  const int ranks = more.starts_with(stages) ? 4 : 2;
  const auto job = [&](const TempDir& dir, std::int64_t steps) {
    return digits_job(dir, "metrics",
                      "[model]\nname = cnn_bn\n" + adam +
                          "[train]\ncheck_replicas = true\nmax_steps = " + std::to_string(steps) + "\n" + more +
                          "[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
  };
  TempDir undisturbed, dir;
  const auto expected = TrainingJob(job(undisturbed, 14)).run(ranks)[0];
  for (const std::int64_t steps : {1, 5, 13}) TrainingJob(job(dir, steps)).run(ranks);
  const auto resumed = TrainingJob(job(dir, 14)).run(ranks)[0];
  CHECK(resumed.parameter_digest == expected.parameter_digest);
  CHECK(resumed.evaluation.loss == expected.evaluation.loss);
  CHECK(losses_in(dir / "metrics") == losses_in(undisturbed / "metrics"));
  const auto files = tensor_files(dir / "checkpoints/step_000014");
  CHECK_FALSE(files.empty());
  CHECK((files == tensor_files(undisturbed / "checkpoints/step_000014")));
}

TEST_CASE("evaluations after steps are beside those after epochs, and change no bit of a run") {
  // 6400 samples give 10 steps an epoch for two ranks with batch 320.
  const auto lines_of = [](const TempDir& dir, const std::string& eval) {
    const std::string job = "[train]\nepochs = 2\nbatch_size = 320\n" + adam + "[eval]\n" + eval;
    const auto digest =
        TrainingJob(digits_job(dir, "metrics", "[model]\nname = mlp\n" + job)).run(2)[0].parameter_digest;
    std::vector<std::int64_t> evaluated;  // the last step before each evaluation
    std::int64_t step = 0;
    std::istringstream lines(read_whole_file(dir / "metrics"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = boost::json::parse(line).as_object();
      if (const auto* found = record.if_contains("step")) step = found->to_number<std::int64_t>();
      if (record.contains("eval_loss")) evaluated.push_back(step);
    }
    return std::pair(digest, evaluated);
  };
  using Steps = std::vector<std::int64_t>;
  TempDir epochs, both, steps;
  const auto [digest, after_epochs] = lines_of(epochs, "every_epochs = 1\n");
  CHECK(after_epochs == Steps{10, 20});
  CHECK(lines_of(both, "every_epochs = 1\nevery_steps = 4\n") == std::pair(digest, Steps{4, 8, 10, 12, 16, 20}));
  CHECK(lines_of(steps, "every_epochs = 0\nevery_steps = 8\n") == std::pair(digest, Steps{8, 16, 20}));
}

TEST_CASE("a crash between checkpoints costs time, not bits") {
  const auto job = [&](const TempDir& dir, std::int64_t steps) {
    return digits_job(dir, "metrics",
                      "[model]\nname = linear\n" + adam + "[train]\nmax_steps = " + std::to_string(steps) +
                          "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\nevery_steps = 10\n");
  };
  TempDir undisturbed;
  const auto expected = TrainingJob(job(undisturbed, 40)).run(2)[0];
  TempDir dir;
  TrainingJob(job(dir, 27)).run(2);
  std::filesystem::remove_all(dir / "checkpoints/step_000027");  // as if killed at step 27, before it was saved
  const auto again = TrainingJob(job(dir, 40)).run(2)[0];
  CHECK(again.parameter_digest == expected.parameter_digest);
  CHECK(losses_in(dir / "metrics") == losses_in(undisturbed / "metrics"));
}

TEST_CASE("a run goes on at the same sample with another number of ranks") {
  const auto job = [&](const TempDir& dir, std::int64_t steps, int batch) {
    return digits_job(dir, "metrics",
                      "[model]\nname = linear\n" + sgd + "[train]\nmax_steps = " + std::to_string(steps) +
                          "\nbatch_size = " + std::to_string(batch) +
                          "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
  };
  TempDir one;
  TrainingJob(job(one, 45, 128)).run(1);
  TempDir changing;
  TrainingJob(job(changing, 15, 128)).run(1);
  TrainingJob(job(changing, 30, 64)).run(2);
  TrainingJob(job(changing, 45, 32)).run(4);
  CHECK(difference(losses_in(one / "metrics"), losses_in(changing / "metrics"), 45) < 1e-5);
}

TEST_CASE("every sample of an epoch is trained once although the number of ranks changes from 3 to 2, 5 and 1") {
  struct Part {
    int ranks;
    std::int64_t steps;
    std::string batch;
  };
  const std::string per_rank = "batch_size = 9\n";
  const std::string global = "global_batch_size = 25\n";
  for (const std::vector<Part>& parts :
       {std::vector<Part>{{3, 7, per_rank}, {2, 8, per_rank}, {5, 11, per_rank}, {1, 900, per_rank}},
        {{3, 7, global}, {2, 9, global}, {5, 13, global}, {1, 900, global}}}) {
    TempDir dir;
    std::vector<std::int64_t> trained;
    for (const auto& part : parts) {
      TrainingJob job(
          "[model]\nname = linear\n[data]\nname = random\nsamples = 500\ntest_samples = 10\nworkers = 0\n[train]\n" +
          part.batch + "epochs = 1\nmax_steps = " + std::to_string(part.steps) +
          "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
      const auto& samples = job.record_samples();
      job.run(part.ranks);
      const auto indices = samples.indices();
      trained.insert(trained.end(), indices.begin(), indices.end());
      CHECK(deviation(trained, data::epoch_order(500, 0, 0, true)) == "");
    }
    CHECK(trained.size() == 500);
  }
}

TEST_CASE("a run goes on at the same sample where the batches of the ranks do not divide") {
  const auto job = [](const TempDir& dir, std::int64_t steps) {
    return "[data]\nname = random\nsamples = 500\ntest_samples = 10\n[model]\nname = linear\n" + sgd +
           "[metrics]\nfile = " + (dir / "metrics").string() +
           "\n[train]\nepochs = 3\nglobal_batch_size = 35\nmax_steps = " + std::to_string(steps) +
           "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n";
  };
  TempDir one;
  TrainingJob(job(one, 45)).run(1);
  TempDir changing;
  int ranks = 3;
  for (const std::int64_t steps : {7, 15, 20, 45}) {
    TrainingJob(job(changing, steps)).run(ranks);
    ranks = ranks == 3 ? 2 : ranks == 2 ? 5 : 4;
  }
  CHECK(difference(losses_in(one / "metrics"), losses_in(changing / "metrics"), 45) < 1e-5);
}

TEST_CASE("a global batch means the same with any number of ranks, a short last step too") {
  // 107 samples give steps of 20, then one of 7, in which some of eight ranks have no sample.
  TempDir dir;
  const auto losses = [&](int ranks, const std::string& train) {
    TrainingJob("[data]\nname = random\nsamples = 107\ntest_samples = 10\n[model]\nname = linear\n" + sgd +
                "[metrics]\nfile = " + (dir / "m").string() + "\n[train]\nepochs = 3\ncheck_replicas = true\n" + train)
        .run(ranks);
    return losses_in(dir / "m");
  };
  const auto one = losses(1, "batch_size = 20\n");
  REQUIRE(one.size() == 18);
  for (const int ranks : {1, 2, 3, 8}) {
    INFO(ranks << " ranks");
    const auto shared = losses(ranks, "global_batch_size = 20\n");
    CHECK(shared.size() == 18);
    CHECK(difference(one, shared, 18) < 1e-5);
    const auto accumulated = losses(ranks, "global_batch_size = 20\naccumulate = 3\n");
    CHECK(accumulated.size() == 18);
    CHECK(difference(one, accumulated, 18) < 1e-5);
  }
  // Equal shares give the same bits as the batch size per rank.
  CHECK(losses(2, "global_batch_size = 20\n") == losses(2, "batch_size = 10\n"));
}

TEST_CASE("a run whose global batches are uneven has the same bits when it is stopped and goes on") {
  const auto job = [](const TempDir& dir, std::int64_t steps) {
    return TrainingJob(
        "[data]\nname = random\nsamples = 107\ntest_samples = 10\n[model]\nname = mlp\nhidden = 8\ndropout = 0.2\n" +
        adam + "[train]\nepochs = 3\nglobal_batch_size = 20\nmax_steps = " + std::to_string(steps) +
        "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
  };
  TempDir undisturbed;
  const auto expected = job(undisturbed, 18).run(3)[0].parameter_digest;
  TempDir dir;
  for (const std::int64_t stop : {1, 5, 6, 7}) job(dir, stop).run(3);
  CHECK(job(dir, 18).run(3)[0].parameter_digest == expected);
}

TEST_CASE("with drop_last a global batch that is not full is left out, with any number of ranks") {
  for (const int ranks : {1, 2, 3}) {
    TrainingJob job(
        "[data]\nname = random\nsamples = 107\ntest_samples = 10\nworkers = 0\ndrop_last = true\n[model]\nname = "
        "linear\n"
        "[train]\nglobal_batch_size = 20\n");
    const auto& samples = job.record_samples();
    CHECK(job.run(ranks)[0].steps == 5);
    CHECK(samples.indices().size() == 100);
  }
  TrainingJob too_large(
      "[data]\nname = random\nsamples = 19\ndrop_last = true\n[model]\nname = linear\n"
      "[train]\nglobal_batch_size = 20\n");
  CHECK_THROWS_WITH(too_large.run(2),
                    "data.drop_last leaves nothing of 19 samples: a step takes 20 "
                    "(train.global_batch_size)");
}

TEST_CASE("an epoch that has no samples left for this run is over") {
  const auto job = [](const TempDir& dir, const std::string& data, std::int64_t epochs) {
    return TrainingJob("[model]\nname = linear\n[data]\nname = random\ntest_samples = 10\n" + data +
                       "[train]\nbatch_size = 10\nepochs = " + std::to_string(epochs) +
                       "\n[checkpoint]\ndir = " + (dir / "checkpoints").string() + "\n");
  };
  SECTION("because the data set has become smaller") {
    TempDir dir;
    job(dir, "samples = 100\n[train]\nmax_steps = 8\n", 2).run(1);
    CHECK(job(dir, "samples = 50\n", 2).run(1)[0].steps == 8 + 5);
    CHECK(job(dir, "samples = 50\n", 2).run(1)[0].steps == 8 + 5);
  }
  SECTION("because more ranks leave out a longer tail") {
    TempDir dir;
    job(dir, "samples = 17\ndrop_last = true\n[train]\nmax_steps = 1\n", 2).run(1);
    // 8 of 10 samples are left to 2 ranks: 5 each are done, 3 remain; then another epoch.
    CHECK(job(dir, "samples = 17\ndrop_last = true\n", 2).run(2)[0].steps == 1 + 1 + 1);
    TempDir other;
    job(other, "samples = 11\ndrop_last = true\n[train]\nmax_steps = 1\n", 2).run(1);
    CHECK(job(other, "samples = 11\ndrop_last = true\n", 2).run(2)[0].steps == 1 + 1);
  }
}

TEST_CASE("a linear model stays under 95 % on the generated digits") {
  const auto summary = TrainingJob("[model]\nname = linear\n[data]\nname = digits\n[train]\nepochs = 6\n").run(1)[0];
  REQUIRE(summary.evaluation.accuracy);
  CHECK(*summary.evaluation.accuracy < 0.95);
  CHECK(*summary.evaluation.accuracy > 0.5);
}

TEST_CASE("a small convolutional network learns the generated images of cifar10, a linear model does not") {
  TempDir empty;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(empty.path());
  const auto accuracy_of = [](const std::string& model) {
    return TrainingJob("[model]\nname = " + model +
                       "\n[data]\nname = cifar10\n[train]\nepochs = 4\n[eval]\nevery_epochs = 0\n")
        .run(2)[0]
        .evaluation.accuracy.value();
  };
  CHECK(accuracy_of("cnn") > 0.85);
  CHECK(accuracy_of("linear") < 0.3);
  std::filesystem::current_path(before);
}

TEST_CASE("a linear rule is learnt down to its noise") {
  const auto summary =
      TrainingJob(
          "[model]\nname = linear\n[data]\nname = random\noutputs = 3\nnoise = 0.1\n[optim]\nname = sgd\nlr = 0.1\n"
          "[train]\nepochs = 3\n")
          .run(2)[0];
  CHECK(summary.evaluation.loss == Approx(0.01).epsilon(0.1));
  CHECK_FALSE(summary.evaluation.accuracy);
}

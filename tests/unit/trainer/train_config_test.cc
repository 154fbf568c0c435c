#include "worker/trainer/config/train_config.h"

#include <limits>
#include <utility>

#include "common/atomic_file.h"
#include "common/config/config_file.h"
#include "common/error.h"
#include "worker/trainer/state/datasets.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/images_support.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

namespace {

struct Bound {
  TrainConfig config;
  Settings settings;
  explicit Bound(const std::string& text = "") {
    bind(settings, config);
    apply(settings, parse_config(text, "t.cfg"), Origin::file, {"launch"});
    settle_batch_size(settings, config);
  }
};

std::string error_of(const std::string& text) {
  try {
    Bound b(text);
    settle_needs(b.settings, b.config);
    validate(b.config, b.settings);
    make_datasets(b.config, b.settings);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a hook that does not exist, a delay of nothing and settings that do not go together are mistakes") {
  CHECK(error_of("[parallel]\nhook = fp16+powersgd\n") == "no error");
  const std::string one_bit = "[parallel]\nhook = onebit\n[optim]\nname = ";
  CHECK(error_of(one_bit + "adamw\n") == "no error");
  CHECK(error_of(one_bit + "sgd\n") ==
        "t.cfg:4: optim.name = sgd: it does not go with parallel.hook = onebit: it averages Adam's momentum, of whole "
        "parameters: there is no average of gradients to clip, to examine, to scale or to divide");
  for (const std::string each : {"clip_norm = 1", "clip_value = 1", "skip_outliers = 3"})
    CHECK_THAT(error_of(one_bit + "adam\n" + each + "\n"),
               Catch::StartsWith("t.cfg:5: optim." + each + ": it does not go with parallel.hook = onebit: "));
  CHECK(error_of("[parallel]\nhook = int8+fp16\n") ==
        "t.cfg:2: parallel.hook = int8+fp16: int8 averages by itself, so it has to be the last");
  CHECK(error_of("[parallel]\nzero = 1\nhook = fp16\n") == "no error");
  CHECK(error_of("[parallel]\nzero = 2\nhook = fp16\n") == "no error");
  CHECK_THAT(error_of("[parallel]\ndevices = cpu:0 gpu:1\n"),
             Catch::Contains("t.cfg:2: parallel.devices = cpu:0 gpu:1: "));
  CHECK(error_of("[parallel]\nstrategy = data_parallel\ndevices = cpu:1 cpu:2\n") ==
        "t.cfg:3: parallel.devices = cpu:1 cpu:2: data_parallel begins with cpu:0, where batches and the model are");
  CHECK(error_of("[parallel]\nstrategy = data_parallel\n") ==
        "t.cfg:2: parallel.strategy = data_parallel: parallel.devices has to be given as well");
  CHECK_THAT(error_of("[parallel]\nstrategy = data_parallel\ndevices = \",\"\n"),
             Catch::Contains("parallel.devices has to be given as well"));
  CHECK(error_of("[parallel]\ndevices = cuda:0 cuda:1\n[train]\ndevice = cpu\n") ==
        "t.cfg:4: train.device = cpu: parallel.devices = cuda:0 cuda:1 are CUDA devices");
  CHECK(error_of("[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cuda:1\n") ==
        "t.cfg:3: parallel.devices = cpu:0 cuda:1: devices are all of the CPU or all of CUDA");
  CHECK(parse_names(" a.b, c d,") == std::vector<std::string>{"a.b", "c", "d"});
}

TEST_CASE("a parallel setting that its layout would ignore is a mistake") {
  CHECK(error_of("[parallel]\nstrategy = data_parallel\ndevices = cpu:0 cpu:1\nsync_batch_norm = true\n"
                 "[model]\nname = cnn_bn\n") ==
        "t.cfg:2: parallel.strategy = data_parallel: it does not go with parallel.sync_batch_norm = true: ranks or "
        "devices may "
        "have different numbers of micro-batches, and so no statistics in common");
  CHECK(
      error_of("[parallel]\nzero = 2\ndelay_all_reduce_named_params = fc1.bias\n") ==
      "t.cfg:3: parallel.delay_all_reduce_named_params = fc1.bias: it has no effect with parallel.zero = 2 (t.cfg:2); "
      "it needs parallel.zero = 0 or 1");
  CHECK_THAT(error_of("[parallel]\nzero = 3\ndelay_all_reduce_named_params = a\nparam_to_hook_all_reduce = b\n"),
             Catch::Contains("parallel.delay_all_reduce_named_params = a: "));
  CHECK(error_of("[parallel]\nzero = 1\ndelay_all_reduce_named_params = fc1.bias\n") == "no error");
}

TEST_CASE("a mistake in a train.cfg is one line with file, line and what would be right") {
  CHECK(error_of("[train]\nepoch = 3\n") == "t.cfg:2: unknown key train.epoch; did you mean train.epochs?");
  CHECK(error_of("[train]\nbatch_size = 0\n") ==
        "t.cfg:2: train.batch_size = 0: expected a whole number from 1 to 1000000000");
  CHECK(error_of("[model]\nname = resnet\n") ==
        "t.cfg:2: model.name = resnet: expected one of cnn, cnn_bn, conv_net, sequential_cnn, two_part_resnet, "
        "resnet18, resnet50, mlp, linear, linear_pair, transformer, gpt");
  CHECK(error_of("[model]\nname = resnet18\nstem = tiny\n") ==
        "t.cfg:3: model.stem = tiny: expected one of cifar, imagenet");
  CHECK(error_of("[data]\nname = text\n[model]\nname = gpt\nwidth = 100\nheads = 3\n") ==
        "t.cfg:6: model.heads = 3: 100 features do not divide by 3 heads");
  CHECK(error_of("[data]\nname = text\n[model]\nname = gpt\nwidth = 65536\n") ==
        "t.cfg:5: model.width = 65536: a layer of 4 x 65536 x 65536 numbers is larger than the limit of 268435456");
  CHECK(error_of("[data]\nname = text\n[model]\nname = gpt\npreset = gpt2\ncontext = 1000000\n") ==
        "t.cfg:6: model.context = 1000000: an embedding of 1000000 x 768 numbers is larger than the limit of "
        "268435456");
  CHECK(error_of("[data]\nname = text\ncontext = 200\n[model]\nname = gpt\n") ==
        "t.cfg:3: data.context = 200: gpt sees at most 128 tokens (model.context, model.preset)");
  CHECK(error_of("[model]\nname = sequential_cnn\n[data]\nname = random\nshape = 1x5x9\n") ==
        "t.cfg:5: data.shape = 1x5x9: model sequential_cnn takes channels, height and width, at least 1x6x6");
  CHECK(error_of("[data]\nname = random\n\nshape = 3xx\n[model]\nname = linear\n") == "no error");
  CHECK(error_of("[data]\nname = random\nshape = 3x0\n") ==
        "t.cfg:3: data.shape = 3x0: expected sizes from 1 to 1000000, such as 128 64 or 1x28x28");
  CHECK(error_of("[data]\nname = random\nshape = \"\"\n") == "t.cfg:3: data.shape = : expected at least one size");
  CHECK(error_of("[model]\nname = mlp\nhidden = 12.5\n") ==
        "t.cfg:3: model.hidden = 12.5: expected sizes from 1 to 1000000, such as 128 64 or 1x28x28");
  CHECK(error_of("[train]\nbatch_size = 9223372036854775807\n") ==
        "t.cfg:2: train.batch_size = 9223372036854775807: expected a whole number from 0 to 1000000000");
  CHECK(error_of("[data]\nmixup = 0.2\n[train]\ntask = regression\n") ==
        "t.cfg:2: data.mixup = 0.2: only classification and distillation learn shares of classes");
  CHECK(error_of("[model]\nname = transformer\nheads = 5\n") ==
        "t.cfg:3: model.heads = 5: 128 features do not divide by 5 heads");
  CHECK_THAT(error_of("[model]\nname = transformer\nfeedforward = 1000000\nwidth = 4096\n"),
             Catch::Contains("t.cfg:3: model.feedforward = 1000000: a layer of 1000000 x 4096 numbers is larger"));
  CHECK(error_of("[optim]\nbeta1 = 1\n") == "t.cfg:2: optim.beta1 = 1: expected a number below 1");
  CHECK(error_of("[optim]\nbeta2 = 1\n") == "t.cfg:2: optim.beta2 = 1: expected a number below 1");
  CHECK(error_of("[optim]\nname = adamax\n") ==
        "t.cfg:2: optim.name = adamax: expected one of sgd, adam, adamw, rmsprop, adagrad, lamb, lars, muon");
  CHECK(error_of("[optim]\ndampening = 2\n") == "t.cfg:2: optim.dampening = 2: expected a number from 0 to 1");
  CHECK(error_of("[optim]\nclip_norm = -1\n") == "t.cfg:2: optim.clip_norm = -1: expected a number at least 0");
  CHECK(error_of("[optim]\nname = sgd\nmomentum = 0.9\nnesterov = true\ndampening = 0.5\n") ==
        "t.cfg:5: optim.dampening = 0.5: optim.nesterov = true needs a momentum without dampening");
  CHECK(error_of("[optim]\nname = sgd\nmomentum = 0.9\nnesterov = true\n") == "no error");
  CHECK(error_of("[optim]\nclip_norm = 1\nclip_value = 0.5\n") ==
        "t.cfg:3: optim.clip_value = 0.5: optim.clip_norm = 1 is given as well; give one of the two");
  CHECK(error_of("[optim]\nschedule = cosin\n") ==
        "t.cfg:2: optim.schedule = cosin: expected one of constant, step, multistep, cosine, linear, onecycle, "
        "inverse_sqrt, plateau");
  CHECK(error_of("[optim]\nschedule = multistep\n") ==
        "t.cfg:2: optim.schedule = multistep: multistep needs optim.milestones, the steps at which the learning rate "
        "falls");
  CHECK(error_of("[optim]\nschedule = multistep\nmilestones = 3 9 9\n") ==
        "t.cfg:3: optim.milestones = 3 9 9: expected ascending numbers");
  CHECK(error_of("[optim]\nschedule = inverse_sqrt\n") ==
        "t.cfg:2: optim.schedule = inverse_sqrt: inverse_sqrt needs an optim.warmup");
  CHECK(error_of("[optim]\nschedule = cosine\nschedule_length = 9\nwarmup = 9\n") ==
        "t.cfg:4: optim.warmup = 9: expected less than optim.schedule_length");
  CHECK(error_of("[optim]\nschedule = cosine\nschedule_length = 9\nwarmup = 8\n") == "no error");
  CHECK(error_of("[train]\ntask = classify\n") ==
        "t.cfg:2: train.task = classify: expected one of auto, classification, language_modelling, regression, "
        "distillation, mean_output");
  CHECK(error_of("[dist]\nbackend = nccl\n") ==
        "t.cfg:2: dist.backend = nccl: NCCL exchanges only the memory of GPUs: it needs train.device = cuda, or use "
        "auto");
  CHECK(error_of("[dist]\nbackend = ucc\n") ==
        "t.cfg:2: dist.backend = ucc: expected one of auto, gloo, shm, hierarchical, mpi, nccl");
  CHECK(error_of("[dist]\nbackend = mpi\n") == "no error");
  CHECK(error_of("[dist]\nstaging_kb = 30\n") == "t.cfg:2: dist.staging_kb = 30: expected a multiple of 4");
  CHECK(error_of("[dist]\nstaging_kb = 4\n") == "no error");
  CHECK(error_of("[data]\nname = random\nshape = 28x28\n") ==
        "t.cfg:3: data.shape = 28x28: model cnn takes channels, height and width, at least 1x16x16");
  CHECK(
      error_of("[data]\nname = random\nshape = 99999x99999x99999\n[model]\nname = linear\n") ==
      "t.cfg:3: data.shape = 99999x99999x99999: a sample of 99999 x 99999 x 99999 numbers is larger than the limit of "
      "268435456");
  CHECK(error_of("[data]\nname = random\nshape = 1000000 1000000 1000000 1000000\n[model]\nname = linear\n") ==
        "t.cfg:3: data.shape = 1000000 1000000 1000000 1000000: a sample of 1000000 x 1000000 x 1000000 x 1000000 "
        "numbers is larger than the limit of 268435456");
  CHECK(error_of("[data]\nname = random\nshape = 16x16x16\noutputs = 65537\n[model]\nname = linear\n") ==
        "t.cfg:4: data.outputs = 65537: a linear rule of 4096 x 65537 numbers is larger than the limit of 268435456");
  CHECK(error_of("[data]\nname = random\nshape = 1024x1024\nsamples = 2000\n[train]\nbatch_size = 5000\n"
                 "[model]\nname = linear\n") ==
        "t.cfg:6: train.batch_size = 5000: a batch of 2000 x 1048576 numbers is larger than the limit of 1073741824");
  CHECK(error_of("[data]\nname = random\nshape = 4096x4096\n[model]\nname = linear\n") ==
        "default: eval.batch_size = 100: a batch of 100 x 16777216 numbers is larger than the limit of 1073741824");
  CHECK(error_of("[data]\nname = digits\n[model]\nname = mlp\nhidden = 16385 16384\n") ==
        "t.cfg:5: model.hidden = 16385 16384: a layer of 16385 x 16384 numbers is larger than the limit of 268435456");
  CHECK_THAT(error_of("[data]\nname = digits\nsamples = 100000000\n"),
             Catch::StartsWith("t.cfg:3: data.samples = 100000000: generated digits are kept in memory, "));
  CHECK_THAT(error_of("[data]\nname = cifar10\nsamples = 100000000\n"),
             Catch::StartsWith("t.cfg:3: data.samples = 100000000: generated images are kept in memory, "));
  CHECK(error_of("[checkpoint]\nresume = yes\n") ==
        "t.cfg:2: checkpoint.resume = yes: expected one of auto, never, require, best");
  CHECK(error_of("[data]\nname = random\nflip = true\n[model]\nname = linear\n") ==
        "t.cfg:3: data.flip = true: images can be cropped, flipped and cut, samples of shape 16 cannot");
  CHECK(error_of("[data]\nname = digits\ncrop_padding = 2000\n") ==
        "t.cfg:3: data.crop_padding = 2000: expected a whole number from 0 to 1024");
  CHECK(error_of("[data]\nname = random\nlabels = true\n") ==
        "default: data.outputs = 1: labels need at least 2 classes");
  CHECK(error_of("[data]\ndir = /nonexistent\n") ==
        "t.cfg:2: data.dir = /nonexistent: expected the four IDX files of MNIST there (train-images-idx3-ubyte, "
        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz)");
  CHECK(error_of("[launch]\nnnodes = 2\n[train]\nepochs = 2\n") == "no error");
}

TEST_CASE("the default data folder may be missing, and generated samples say so in one line") {
  TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Bound b, cifar10("[data]\nname = cifar10\nsamples = 300\ntest_samples = 20\n");
  const auto images = make_datasets(cifar10.config, cifar10.settings);
  const auto datasets = make_datasets(b.config, b.settings);
  std::filesystem::current_path(before);
  CHECK(datasets.train->size() == 10000);
  CHECK(datasets.test->size() == 2000);
  CHECK(datasets.note ==
        "data/mnist does not hold the MNIST files: using generated digits instead (scripts/get-data mnist fetches the "
        "real ones)");
  CHECK(images.train->size() == 300);
  CHECK(images.test->size() == 20);
  CHECK(images.note ==
        "data/cifar10 does not hold the CIFAR-10 files: using generated images instead (scripts/get-data cifar10 "
        "fetches the real ones)");
}

TEST_CASE("CIFAR-10 files in data.dir are read, and one that is missing there is an error") {
  TempDir dir;
  const std::string text = "[data]\nname = cifar10\ndir = " + dir.path().string() + "\nnormalize = false\n";
  CHECK(error_of(text) == "t.cfg:3: data.dir = " + dir.path().string() +
                              ": expected the six files of CIFAR-10's binary version there (data_batch_1.bin to "
                              "data_batch_5.bin, test_batch.bin)");
  testing::write_cifar10(dir.path());
  const Bound b(text);
  const auto datasets = make_datasets(b.config, b.settings);
  CHECK(datasets.note.empty());
  CHECK(datasets.train->size() == 5);
  CHECK(testing::read_image(*datasets.train, 2).input[1024] == 51 * 3 / 255.0F);
  const Bound normalized("[data]\nname = cifar10\ndir = " + dir.path().string() + "\n");
  CHECK(testing::read_image(*make_datasets(normalized.config, normalized.settings).train, 0).input[0] ==
        -0.4914F / 0.2470F);
  std::filesystem::remove(dir / "test_batch.bin");
  CHECK(error_of(text) == (dir / "test_batch.bin").string() + " is missing; scripts/get-data cifar10 fetches it");
}

TEST_CASE("numbers of generated samples have no effect where the default folder holds files, and a line says so") {
  TempDir dir;
  std::filesystem::create_directories(dir / "data" / "cifar10");
  testing::write_cifar10(dir / "data" / "cifar10");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Bound without("[data]\nname = cifar10\n"), with("[data]\nname = cifar10\nsamples = 300\nseed = 5\n");
  const auto files = make_datasets(without.config, without.settings), same = make_datasets(with.config, with.settings);
  std::filesystem::current_path(before);
  CHECK(files.note.empty());
  CHECK(same.train->size() == 5);
  CHECK(same.note ==
        "data/cifar10 holds the files of cifar10, so these settings have no effect: data.samples = 300 (t.cfg:3), "
        "data.seed = 5 (t.cfg:4)");
}

TEST_CASE("of the batch size per rank and the global one, the stronger source counts") {
  const auto both = [](const std::string& file, const std::vector<std::string>& arguments) {
    TrainConfig config;
    Settings settings;
    bind(settings, config);
    apply(settings, parse_config(file, "t.cfg"), Origin::file);
    apply(settings, parse_overrides(arguments), Origin::command_line);
    settle_batch_size(settings, config);
    settle_needs(settings, config);
    validate(config, settings);
    // The printed configuration has the same meaning.
    TrainConfig again;
    Settings reread;
    bind(reread, again);
    apply(reread, parse_config(effective_config(config, settings), "printed"), Origin::file);
    settle_batch_size(reread, again);
    settle_needs(reread, again);
    validate(again, reread);
    CHECK(again.train.batch_size == config.train.batch_size);
    CHECK(again.train.global_batch_size == config.train.global_batch_size);
    return std::pair(config.train.batch_size, config.train.global_batch_size);
  };
  using Sizes = std::pair<std::int64_t, std::int64_t>;
  CHECK(both("", {}) == Sizes{64, 0});
  CHECK(both("[train]\nglobal_batch_size = 100\n", {}) == Sizes{0, 100});
  CHECK(both("[train]\nbatch_size = 8\n", {"--train.global_batch_size=100"}) == Sizes{0, 100});
  CHECK(both("[train]\nglobal_batch_size = 100\n", {"--train.batch_size=8"}) == Sizes{8, 0});
  CHECK(both("[train]\nglobal_batch_size = 0\nbatch_size = 8\n", {}) == Sizes{8, 0});
  CHECK(error_of("[train]\nglobal_batch_size = 100\nbatch_size = 8\n") ==
        "t.cfg:3: train.batch_size = 8: train.global_batch_size = 100 is given in the same place; give one of the two");
  CHECK_THROWS_AS(both("", {"--train.global_batch_size=100", "--train.batch_size=8"}), Error);
}

TEST_CASE("train.shards is refused with what would let the result depend on the ranks") {
  CHECK(error_of("[train]\nshards = 8\n") == "no error");
  for (const std::string setting :
       {"parallel.strategy = local_sgd", "parallel.hook = fp16", "parallel.zero = 1", "parallel.tensor = 2",
        "parallel.balance = true", "parallel.static_graph = true", "parallel.find_unused_parameters = true",
        "parallel.ignored_parameters = fc.weight", "train.quantization_aware = true"}) {
    const auto dot = setting.find('.');
    CHECK(error_of("[train]\nshards = 8\n[" + setting.substr(0, dot) + "]\n" + setting.substr(dot + 1) + "\n") ==
          "t.cfg:4: " + setting +
              ": it does not go with train.shards = 8: the bits of a step would depend on the number of ranks: sums "
              "are of "
              "shards, in one fixed order");
  }
  CHECK(error_of("[train]\nshards = 8\naccumulate = 2\n") ==
        "t.cfg:3: train.accumulate = 2: train.shards divides the samples of a step");
  CHECK(error_of("[train]\nshards = 8\n[optim]\nschedule = plateau\n") == "no error");
  CHECK_THAT(error_of("[train]\nshards = 8\ndevice = cuda\n"),
             Catch::Contains("train.shards = 8: it does not go with train.device = cuda: "));
}

TEST_CASE("products of forms of parallel training that cannot be right are refused with the reason") {
  const std::string dense = "[model]\nname = gpt\n[data]\nname = text\ncontext = 64\n[parallel]\n";
  CHECK_THAT(error_of(dense + "context = 2\nignored_parameters = h.0.attn.c_attn.weight\n"),
             Catch::EndsWith("several ranks compute parts of the same sample, or compute for each other, and need the "
                             "same parameters"));
}

TEST_CASE("batch sizes follow from the settings and the number of ranks") {
  const auto sizes = [](const TrainConfig::Train& train, int world_size) {
    const auto found = batch_sizes(train, world_size);
    return std::pair(found.step, found.micro);
  };
  using Sizes = std::pair<std::int64_t, std::int64_t>;
  CHECK(sizes({.batch_size = 8, .accumulate = 4}, 3) == Sizes{96, 8});
  for (const int ranks : {1, 3, 8}) {
    CHECK(sizes({.batch_size = 8, .shards = 4}, ranks) == Sizes{32, 8});
    CHECK(sizes({.batch_size = 0, .global_batch_size = 30, .shards = 4}, ranks) == Sizes{30, 8});
  }
  CHECK(sizes({.batch_size = 0, .global_batch_size = 96, .accumulate = 4}, 3) == Sizes{96, 8});
  CHECK(sizes({.batch_size = 0, .global_batch_size = 100}, 3) == Sizes{100, 34});
  CHECK(sizes({.batch_size = 0, .global_batch_size = 2}, 3) == Sizes{2, 1});
  CHECK(sizes({.batch_size = 1'000'000'000, .accumulate = 1'000'000'000}, 100).first ==
        std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("sizes are written with blanks, commas or crosses") {
  CHECK(parse_extents("1x28x28") == std::vector<std::int64_t>{1, 28, 28});
  CHECK(parse_extents("128, 64") == std::vector<std::int64_t>{128, 64});
  CHECK(parse_extents("").empty());
}

TEST_CASE("only settings that decide the bits are remembered as such") {
  const auto deciding = settings_that_decide(Bound().settings);
  for (const auto* key : {"model.name", "optim.lr", "train.seed", "train.batch_size", "data.shuffle", "data.seed"})
    CHECK(deciding.contains(key));
  for (const auto* key : {"train.epochs", "metrics.file", "checkpoint.keep", "dist.timeout", "eval.batch_size"})
    CHECK_FALSE(deciding.contains(key));
}

TEST_CASE("replicas are compared every so many steps, which was a flag once") {
  for (const auto& [text, steps] : {std::pair("true", 1), {"false", 0}, {"on", 1}, {"0", 0}, {"500", 500}})
    CHECK(Bound(fmt::format("[train]\ncheck_replicas = {}\n", text)).config.train.check_replicas == steps);
  CHECK(Bound().config.train.check_replicas == 200);
  CHECK(error_of("[train]\ncheck_replicas = perhaps\n") ==
        "t.cfg:2: train.check_replicas = perhaps: expected a whole number at least 0");
}

TEST_CASE("every ready configuration is valid") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DDPRUN_CONFIGS)) {
    if (entry.path().extension() != ".cfg") continue;
    INFO(entry.path());
    TrainConfig config;
    Settings settings;
    bind(settings, config);
    apply(settings, read_config(entry.path()), Origin::file, {"launch"});
    CHECK_NOTHROW(validate(config, settings));
    ++count;
  }
  CHECK(count >= 4);
}

TEST_CASE("the reference page in the tree is current") {
  // The page is made by build/bin/ddprun-worker --reference > configs/reference.md.
  CHECK(read_whole_file(std::filesystem::path(DDPRUN_CONFIGS) / "reference.md") == reference_page());
}

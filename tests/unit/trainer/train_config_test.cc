#include "ddprun/worker/trainer/train_config.h"

#include "ddprun/common/atomic_file.h"
#include "ddprun/common/config/config_file.h"
#include "ddprun/common/error.h"
#include "ddprun/worker/trainer/datasets.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

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
  }
};

std::string error_of(const std::string& text) {
  try {
    const Bound b(text);
    validate(b.config, b.settings);
    make_datasets(b.config, b.settings);
  } catch (const Error& e) {
    CHECK(e.code() == Errc::usage);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a mistake in a train.cfg is one line with file, line and what would be right") {
  CHECK(error_of("[train]\nepoch = 3\n") == "t.cfg:2: unknown key train.epoch; did you mean train.epochs?");
  CHECK(error_of("[train]\nbatch_size = 0\n") ==
        "t.cfg:2: train.batch_size = 0: expected a whole number from 1 to 1000000000");
  CHECK(error_of("[model]\nname = resnet\n") == "t.cfg:2: model.name = resnet: expected one of cnn, mlp, linear");
  CHECK(error_of("[data]\n\nshape = 3xx\n") == "no error");
  CHECK(error_of("[data]\nshape = 3x0\n") ==
        "t.cfg:2: data.shape = 3x0: expected sizes from 1 to 1000000, such as 128 64 or 1x28x28");
  CHECK(error_of("[data]\nshape = \"\"\n") == "t.cfg:2: data.shape = : expected at least one size");
  CHECK(error_of("[model]\nhidden = 12.5\n") ==
        "t.cfg:2: model.hidden = 12.5: expected sizes from 1 to 1000000, such as 128 64 or 1x28x28");
  CHECK(error_of("[train]\nbatch_size = 9223372036854775807\n") ==
        "t.cfg:2: train.batch_size = 9223372036854775807: expected a whole number from 1 to 1000000000");
  CHECK(error_of("[optim]\nbeta1 = 1\n") == "t.cfg:2: optim.beta1 = 1: expected a number below 1");
  CHECK(error_of("[optim]\nbeta2 = 1\n") == "t.cfg:2: optim.beta2 = 1: expected a number below 1");
  CHECK(error_of("[dist]\nbackend = nccl\n") ==
        "t.cfg:2: dist.backend = nccl: NCCL exchanges the memory of GPUs, and tensors are in host memory so far: use "
        "auto");
  CHECK(error_of("[dist]\nbackend = mpi\n") ==
        "t.cfg:2: dist.backend = mpi: expected one of auto, gloo, shm, hierarchical");
  CHECK(error_of("[dist]\nstaging_kb = 30\n") == "t.cfg:2: dist.staging_kb = 30: expected a multiple of 4");
  CHECK(error_of("[dist]\nstaging_kb = 4\n") == "no error");
  CHECK(error_of("[data]\nname = random\nshape = 28x28\n") ==
        "t.cfg:3: data.shape = 28x28: model cnn takes channels, height and width, at least 1x16x16");
  CHECK(error_of("[checkpoint]\nevery_steps = 5\n") ==
        "t.cfg:2: checkpoint.every_steps = 5: checkpoint.dir has to be given as well");
  CHECK(error_of("[data]\nname = random\nlabels = true\n") ==
        "default: data.outputs = 1: labels need at least 2 classes");
  CHECK(error_of("[data]\ndir = /nonexistent\n") ==
        "t.cfg:2: data.dir = /nonexistent: expected the four IDX files of MNIST there (train-images-idx3-ubyte, "
        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz)");
  CHECK(error_of("[launch]\nnnodes = 2\n[train]\nepochs = 2\n") == "no error");
}

TEST_CASE("the default data folder may be missing, and generated digits say so in one line") {
  TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Bound b;
  const auto datasets = make_datasets(b.config, b.settings);
  std::filesystem::current_path(before);
  CHECK(datasets.train->size() == 10000);
  CHECK(datasets.test->size() == 2000);
  CHECK(
      datasets.note ==
      "data/mnist does not hold the MNIST files: generated digits take their place (scripts/get-data mnist fetches the "
      "real ones)");
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
  // build/bin/ddprun-worker --reference > configs/reference.md
  CHECK(read_whole_file(std::filesystem::path(DDPRUN_CONFIGS) / "reference.md") == reference_page());
}

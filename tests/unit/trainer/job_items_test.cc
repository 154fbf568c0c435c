#include "worker/trainer/session/job_items.h"

#include <algorithm>
#include <fstream>

#include "common/config/config_file.h"
#include "common/version.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"
#include "tests/unit/data/images_support.h"

using namespace ddprun;
using namespace ddprun::trainer;
using ddprun::testing::TempDir;

namespace {

SharedItems items_of(const std::string& text, const plugin::Registry& registry = {}) {
  TrainConfig config;
  Settings settings;
  bind(settings, config, registry);
  apply(settings, parse_config(text, "t.cfg"), Origin::file, {"launch"});
  settle_batch_size(settings, config);
  const auto datasets = make_datasets(config, settings, registry);
  return items_of_job("train", config, settings, datasets, registry);
}

// Returns the name of the first item in which two jobs differ; empty if there is none.
std::string difference(const SharedItems& one, const SharedItems& other) {
  const auto found = first_difference(one, other);
  return found ? found->name : "";
}

bool has(const SharedItems& items, const std::string& name) {
  return std::ranges::any_of(items, [&](const auto& item) { return item.name == name; });
}

// Writes two images of 2 x 2 in each split.
void write_mnist(const std::filesystem::path& folder, const std::string& levels = "abcdefgh",
                 const std::string& labels = std::string("\1\2", 2), bool compressed = false) {
  std::filesystem::create_directories(folder);
  const auto write = compressed ? testing::write_compressed : testing::write_plain;
  const std::string ending = compressed ? ".gz" : "";
  for (const std::string split : {"train", "t10k"}) {
    write(folder / (split + "-images-idx3-ubyte" + ending), testing::idx_bytes({2, 2, 2}, levels));
    write(folder / (split + "-labels-idx1-ubyte" + ending), testing::idx_bytes({2}, labels));
  }
}

std::string mnist_in(const std::filesystem::path& folder) {
  return "[data]\nname = mnist\ndir = " + folder.string() + "\n";
}

// Samples whose content is a number.
class Constant : public data::Dataset {
 public:
  explicit Constant(float value) : value_(value) {}
  std::int64_t size() const override { return 3; }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t, std::span<std::byte> input, std::span<std::byte> target) const override {
    std::ranges::copy(std::as_bytes(std::span(&value_, 1)), input.begin());
    std::ranges::fill(target, std::byte{0});
  }

 private:
  const float value_;
  const data::SampleLayout layout_{.input_shape = {1}, .classes = 2};
};

}  // namespace

TEST_CASE("ranks share what decides and how they work together, and each has its own paths and messages") {
  TrainConfig config;
  Settings settings;
  bind(settings, config);
  const auto items = items_of_settings(settings);
  for (const auto* key : {"optim.lr", "train.seed", "train.batch_size", "train.epochs", "dist.bucket_mb",
                          "eval.every_epochs", "parallel.zero", "checkpoint.every_steps", "train.check_replicas"})
    CHECK(has(items, key));
  for (const auto* key : {"data.dir", "train.log_every", "data.workers", "metrics.tensorboard", "optim.offload",
                          "generate.seed", "train.preempt_signal", "model.plugin"})
    CHECK_FALSE(has(items, key));
  for (const auto& setting : settings.all())
    if (setting.spec.scope == Scope::run) CHECK(has(items, setting.key));
}

TEST_CASE("of a path that all ranks have or none, ranks share that it is given") {
  const std::string digits = "[data]\nname = digits\nsamples = 2\ntest_samples = 2\n";
  const auto with = [&](const std::string& text) { return items_of(digits + text); };
  CHECK(difference(with("[metrics]\nfile = /a\n"), with("[metrics]\nfile = /b/c\n")).empty());
  CHECK(difference(with("[metrics]\nfile = /a\n"), with("")) == "metrics.file");
  CHECK(difference(with("[checkpoint]\ndir = /a\n"), with("[checkpoint]\ndir = /b\n")).empty());
  CHECK(difference(with("[checkpoint]\ndir = /a\n"), with("")) == "checkpoint.dir");
  CHECK(difference(with("[metrics]\ntensorboard = /a\n"), with("")).empty());
}

TEST_CASE("the program's version comes first, then its command and the settings in their order") {
  const auto items = items_of("[data]\nname = digits\nsamples = 2\ntest_samples = 2\n");
  CHECK(items[0] == SharedItem{"the version of ddprun-worker", std::string(project_version())});
  CHECK(items[1] == SharedItem{"the command of ddprun-worker", "train"});
  CHECK(items[2].name == "model.name");
  CHECK(items.back() == SharedItem{"the test data", "2 computed samples of 1x28x28"});
}

TEST_CASE("image files are compared by their contents, wherever they are and however they are packed") {
  const TempDir dir;
  write_mnist(dir / "a");
  write_mnist(dir / "same", "abcdefgh", std::string("\1\2", 2), true);
  write_mnist(dir / "image", "abcdefgx");
  write_mnist(dir / "label", "abcdefgh", std::string("\1\3", 2));
  const auto items = items_of(mnist_in(dir / "a"));
  CHECK(has(items, "train-images-idx3-ubyte"));
  CHECK(has(items, "t10k-labels-idx1-ubyte"));
  CHECK(difference(items, items_of(mnist_in(dir / "same"))).empty());
  CHECK(difference(items, items_of(mnist_in(dir / "image"))) == "train-images-idx3-ubyte");
  CHECK(difference(items, items_of(mnist_in(dir / "label"))) == "train-labels-idx1-ubyte");
}

TEST_CASE("generated images are not those of files") {
  const TempDir dir;
  write_mnist(dir / "a");
  auto in_files = items_of(mnist_in(dir / "a")), generated = items_of("[data]\nname = digits\nsamples = 2\n");
  const auto is_setting = [](const SharedItem& item) { return item.name.starts_with("data."); };
  std::erase_if(in_files, is_setting);
  std::erase_if(generated, is_setting);
  CHECK(difference(in_files, generated) == "the training data");
}

TEST_CASE("each file of CIFAR-10 is compared, its labels apart") {
  const TempDir a, b;
  testing::write_cifar10(a.path());
  testing::write_cifar10(b.path());
  const auto items = [](const TempDir& dir) {
    return items_of("[data]\nname = cifar10\ndir = " + dir.path().string());
  };
  const auto usual = items(a);
  CHECK(difference(usual, items(b)).empty());
  std::ofstream(b / "data_batch_4.bin", std::ios::binary) << testing::cifar_record(4, 0, 205, 255);
  CHECK(difference(usual, items(b)) == "the images of data_batch_4.bin");
  std::ofstream(b / "data_batch_2.bin", std::ios::binary) << testing::cifar_record(7, 0, 102, 255);
  CHECK(difference(usual, items(b)) == "the labels of data_batch_2.bin");
}

TEST_CASE("text, token files and a tokenizer are compared") {
  const TempDir a, b;
  const std::string text = "the quick brown fox jumps over the lazy dog, again and again and again";
  const auto of = [](const TempDir& dir, const std::string& name, const std::string& more = "") {
    return items_of("[data]\nname = " + name + "\ncontext = 4\ndir = " + dir.path().string() + "\n" + more);
  };
  testing::write_plain(a / "input.txt", text);
  testing::write_plain(b / "input.txt", text.substr(0, text.size() - 1) + "!");
  CHECK(difference(of(a, "text"), of(b, "text")) == "input.txt (its last tenth)");
  testing::write_plain(b / "input.txt", "T" + text.substr(1));
  CHECK(difference(of(a, "text"), of(b, "text")) == "input.txt (its first nine tenths)");

  const auto write_tokens = [](const TempDir& dir, char token) {
    testing::write_plain(dir / "train_1.bin", std::string(40, '\0'));
    testing::write_plain(dir / "train_2.bin", std::string(39, '\0') + token);
    testing::write_plain(dir / "val.bin", std::string(40, '\0'));
  };
  write_tokens(a, '\0');
  write_tokens(b, '\1');
  CHECK(difference(of(a, "tokens"), of(a, "tokens")).empty());
  CHECK(difference(of(a, "tokens"), of(b, "tokens")) == "train_2.bin");
}

TEST_CASE("a plugin's samples are read for the comparison, as nothing else is known of them") {
  const auto items = [](float value) {
    plugin::Registry registry;
    registry.datasets.add("constant", [value](const plugin::DatasetOptions& options) {
      return std::make_unique<Constant>(options.split == data::Split::test ? 0.0F : value);
    });
    return items_of("[data]\nname = constant\n", registry);
  };
  CHECK(difference(items(1), items(1)).empty());
  CHECK(difference(items(1), items(2)) == "samples of the training data");
}

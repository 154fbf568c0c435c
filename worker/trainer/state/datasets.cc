#include "worker/trainer/state/datasets.h"

#include <utility>

#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/data/cifar.h"
#include "worker/data/digits.h"
#include "worker/data/image_folder.h"
#include "worker/data/images.h"
#include "worker/data/numbers.h"
#include "worker/data/patterns.h"
#include "worker/data/random_tensors.h"
#include "worker/data/tokens.h"
#include "worker/trainer/state/byte_pairs.h"

namespace ddprun::trainer {
namespace {

using data::Split;

data::Normalization normalization_of(const TrainConfig& config) {
  return config.data.normalize ? data::mnist_normalization : data::Normalization{};
}

std::vector<data::Normalization> cifar_normalization_of(const TrainConfig& config) {
  if (!config.data.normalize) return std::vector<data::Normalization>(3);
  return {data::cifar_normalization.begin(), data::cifar_normalization.end()};
}

std::int64_t generated_samples(const TrainConfig& config, Split split) {
  return split == Split::train ? config.data.samples : config.data.test_samples;
}

std::unique_ptr<data::Dataset> make_mnist(const TrainConfig& config, Split split) {
  return data::load_mnist(data_folder(config), split, normalization_of(config));
}

std::unique_ptr<data::Dataset> make_digits(const TrainConfig& config, Split split) {
  return std::make_unique<data::DigitsDataset>(data::DigitsOptions{.size = generated_samples(config, split),
                                                                   .seed = static_cast<std::uint64_t>(config.data.seed),
                                                                   .split = split,
                                                                   .normalization = normalization_of(config)});
}

std::unique_ptr<data::Dataset> make_cifar10(const TrainConfig& config, Split split) {
  return data::load_cifar10(data_folder(config), split, cifar_normalization_of(config));
}

std::unique_ptr<data::Dataset> make_patterns(const TrainConfig& config, Split split) {
  return std::make_unique<data::PatternsDataset>(
      data::PatternsOptions{.size = generated_samples(config, split),
                            .seed = static_cast<std::uint64_t>(config.data.seed),
                            .split = split,
                            .channels = cifar_normalization_of(config)});
}

std::vector<data::Normalization> imagenet_normalization_of(const TrainConfig& config) {
  if (!config.data.normalize) return std::vector<data::Normalization>(3);
  return {data::imagenet_normalization.begin(), data::imagenet_normalization.end()};
}

std::unique_ptr<data::Dataset> make_image_folder(const TrainConfig& config, Split split) {
  return data::load_image_folder(data_folder(config), split, config.data.image_size, imagenet_normalization_of(config));
}

// Makes a data set of one picture, to be predicted.
std::unique_ptr<data::Dataset> make_picture(const std::filesystem::path& path, const TrainConfig& config) {
  const auto classes = data::image_folder_classes(data_folder(config));
  return std::make_unique<data::ImageFiles>(std::vector{data::ImageFile{path, 0}}, config.data.image_size,
                                            static_cast<int>(classes.size()), imagenet_normalization_of(config));
}

std::unique_ptr<data::Dataset> make_random(const TrainConfig& config, Split split) {
  return std::make_unique<data::RandomTensors>(
      data::RandomTensorsOptions{.size = generated_samples(config, split),
                                 .input_shape = parse_extents(config.data.shape),
                                 .outputs = config.data.outputs,
                                 .labels = config.data.labels,
                                 .noise = static_cast<float>(config.data.noise),
                                 .seed = static_cast<std::uint64_t>(config.data.seed),
                                 .split = split});
}

// If the text is missing, scripts/get-data has not fetched it yet.
void check_text(const TrainConfig& config) {
  const auto file = data_folder(config) / "input.txt";
  std::error_code error;
  if (std::filesystem::exists(file, error)) return;
  throw make_error(Errc::usage,
                   "{}: there is no such file: data.dir is the folder of a text called input.txt (scripts/get-data "
                   "tinyshakespeare fetches one into data/tinyshakespeare)",
                   file.string());
}

std::unique_ptr<data::Dataset> make_text(const TrainConfig& config, Split split) {
  check_text(config);
  const auto pairs = byte_pairs_of(config.data);
  return pairs ? data::load_text(data_folder(config), split, config.data.context, *pairs)
               : data::load_text(data_folder(config), split, config.data.context);
}

std::unique_ptr<data::Dataset> make_tokens(const TrainConfig& config, Split split) {
  return data::load_token_shards(data_folder(config), split, config.data.context, config.data.vocabulary);
}

using Maker = std::unique_ptr<data::Dataset>(const TrainConfig&, Split);

// A model for the training samples could not take others.
void check_same_shape(const TrainConfig& config, const data::Dataset& train, const data::Dataset& test) {
  const auto &expected = train.layout().input_shape, &found = test.layout().input_shape;
  if (expected == found) return;
  const auto files = test.sources();
  const auto place = files.empty() ? data_folder(config) : data_folder(config) / files.front().name;
  throw make_error(Errc::usage, "{}: test samples of {}, but those to learn from have {}", place.string(),
                   fmt::join(found, " x "), fmt::join(expected, " x "));
}

Datasets both_splits(const TrainConfig& config, Maker& make, std::string note = {}) {
  auto train = make(config, Split::train);
  auto test = make(config, Split::test);
  check_same_shape(config, *train, *test);
  return {.train = std::move(train), .test = std::move(test), .note = std::move(note)};
}

// A data set in files, and its substitute on a machine without them.
struct Downloadable {
  bool found;  // whether they are in the folder
  Maker& from_files;
  std::string files;  // their names, for errors
  Maker& generated;
  std::string note;
};

// Settings of generated samples say nothing of files; a train.cfg cannot know whether there are files.
std::string note_of_files(const TrainConfig& config, const Settings& settings) {
  std::vector<std::string> given;
  for (const auto* key : {"data.samples", "data.test_samples", "data.seed"})
    if (const auto* setting = settings.find(key); setting->source.origin != Origin::fallback)
      given.push_back(fmt::format("{} = {} ({})", setting->key, setting->print(), setting->source.where));
  if (given.empty()) return "";
  return fmt::format("{} holds the files of {}, so these settings have no effect: {}", data_folder(config).string(),
                     config.data.name, fmt::join(given, ", "));
}

Datasets files_or_generated(const TrainConfig& config, const Settings& settings, const Downloadable& set) {
  if (set.found) return both_splits(config, set.from_files, note_of_files(config, settings));
  if (config.data.dir.empty()) return both_splits(config, set.generated, set.note);
  throw make_error(Errc::usage, "{}: data.dir = {}: expected {}", settings.find("data.dir")->source.where,
                   config.data.dir.string(), set.files);
}

Datasets mnist_or_digits(const TrainConfig& config, const Settings& settings) {
  const auto dir = data_folder(config);
  return files_or_generated(
      config, settings,
      {.found = data::find_mnist(dir, Split::train) && data::find_mnist(dir, Split::test),
       .from_files = make_mnist,
       .files = "the four IDX files of MNIST there (train-images-idx3-ubyte, train-labels-idx1-ubyte, "
                "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz)",
       .generated = make_digits,
       .note = fmt::format("{} does not hold the MNIST files: using generated digits instead (scripts/get-data mnist "
                           "fetches the real ones)",
                           dir.string())});
}

Datasets cifar10_or_patterns(const TrainConfig& config, const Settings& settings) {
  const auto dir = data_folder(config);
  return files_or_generated(
      config, settings,
      {.found = data::holds_cifar10(dir),
       .from_files = make_cifar10,
       .files = "the six files of CIFAR-10's binary version there (data_batch_1.bin to data_batch_5.bin, "
                "test_batch.bin)",
       .generated = make_patterns,
       .note = fmt::format("{} does not hold the CIFAR-10 files: using generated images instead (scripts/get-data "
                           "cifar10 fetches the real ones)",
                           dir.string())});
}

Datasets plugin_datasets(const TrainConfig& config, const plugin::Registry& registry) {
  const auto make = [&](Split split) {
    return registry.datasets.make("data.name", config.data.name,
                                  {.split = split,
                                   .dir = config.data.dir,
                                   .samples = generated_samples(config, split),
                                   .seed = static_cast<std::uint64_t>(config.data.seed)});
  };
  auto train = make(Split::train);
  return {.train = std::move(train), .test = make(Split::test)};
}

Datasets named_datasets(const TrainConfig& config, const Settings& settings, const plugin::Registry& registry) {
  if (registry.datasets.contains(config.data.name)) return plugin_datasets(config, registry);
  if (config.data.name == "mnist") return mnist_or_digits(config, settings);
  if (config.data.name == "cifar10") return cifar10_or_patterns(config, settings);
  if (config.data.name == "digits") return both_splits(config, make_digits);
  if (config.data.name == "image_folder") return both_splits(config, make_image_folder);
  if (config.data.name == "text") return both_splits(config, make_text);
  if (config.data.name == "tokens") return both_splits(config, make_tokens);
  return both_splits(config, make_random);
}

// Calls make(), and if it throws names the key that asked for it.
template <class Make>
auto naming_setting(const Settings& settings, std::string_view key, Make make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const Error& e) {
    const auto* setting = settings.find(key);
    throw make_error(e.code(), "{}: {} = {}: {}", setting->source.where, setting->key, setting->print(), e.what());
  }
}

std::optional<data::Augmentation> augmentation_of(const TrainConfig::Data& d, const Settings& settings,
                                                  const data::SampleLayout& layout) {
  const data::AugmentationOptions& options = d.augmentation;
  if (options.crop_padding == 0 && !options.flip && options.cutout == 0) return std::nullopt;
  const auto* key = options.crop_padding > 0 ? "data.crop_padding" : options.flip ? "data.flip" : "data.cutout";
  return naming_setting(settings, key, [&] { return data::Augmentation(options, layout); });
}

std::optional<data::Mixup> mixup_of(const TrainConfig::Data& d, const Settings& settings,
                                    const data::SampleLayout& layout) {
  if (d.mixup == 0) return std::nullopt;
  return naming_setting(settings, "data.mixup", [&] { return data::Mixup(d.mixup, layout); });
}

}  // namespace

std::filesystem::path data_folder(const TrainConfig& config) {
  return config.data.dir.empty() ? std::filesystem::path("data") / config.data.name : config.data.dir;
}

Datasets make_datasets(const TrainConfig& config, const Settings& settings, const plugin::Registry& registry) {
  auto datasets = named_datasets(config, settings, registry);
  datasets.augmentation = augmentation_of(config.data, settings, datasets.train->layout());
  datasets.mixup = mixup_of(config.data, settings, datasets.train->layout());
  return datasets;
}

std::unique_ptr<data::Dataset> load_samples(const std::filesystem::path& path, const TrainConfig& config,
                                            const Settings& settings, const plugin::Registry& registry) {
  if (path.extension() == ".csv") return data::load_csv(path, make_datasets(config, settings, registry).test->layout());
  if (config.data.name == "mnist" || config.data.name == "digits")
    return data::load_idx_images(path, normalization_of(config));
  if (config.data.name == "image_folder") return make_picture(path, config);
  if (config.data.name == "cifar10") return data::load_cifar_file(path, cifar_normalization_of(config));
  throw make_error(Errc::usage, "{}: samples of data.name = {} are read from a .csv file", path.string(),
                   config.data.name);
}

}  // namespace ddprun::trainer

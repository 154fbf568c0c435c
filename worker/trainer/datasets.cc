#include "ddprun/worker/trainer/datasets.h"

#include <utility>

#include "ddprun/common/error.h"
#include "ddprun/worker/data/digits.h"
#include "ddprun/worker/data/images.h"
#include "ddprun/worker/data/random_tensors.h"
#include "ddprun/worker/data/tokens.h"

namespace ddprun::trainer {
namespace {

using data::Split;

data::Normalisation normalisation_of(const TrainConfig& config) {
  return config.data.normalise ? data::mnist_normalisation : data::Normalisation{};
}

std::unique_ptr<data::Dataset> make_mnist(const TrainConfig& config, Split split) {
  return data::load_mnist(config.data.dir, split, normalisation_of(config));
}

std::unique_ptr<data::Dataset> make_digits(const TrainConfig& config, Split split) {
  return std::make_unique<data::DigitsDataset>(
      data::DigitsOptions{.size = split == Split::train ? config.data.samples : config.data.test_samples,
                          .seed = static_cast<std::uint64_t>(config.data.seed),
                          .split = split,
                          .normalisation = normalisation_of(config)});
}

std::unique_ptr<data::Dataset> make_random(const TrainConfig& config, Split split) {
  return std::make_unique<data::RandomTensors>(
      data::RandomTensorsOptions{.size = split == Split::train ? config.data.samples : config.data.test_samples,
                                 .input_shape = parse_extents(config.data.shape),
                                 .outputs = config.data.outputs,
                                 .labels = config.data.labels,
                                 .noise = static_cast<float>(config.data.noise),
                                 .seed = static_cast<std::uint64_t>(config.data.seed),
                                 .split = split});
}

std::unique_ptr<data::Dataset> make_text(const TrainConfig& config, Split split) {
  return data::load_text(config.data.dir, split, config.data.context);
}

std::unique_ptr<data::Dataset> make_tokens(const TrainConfig& config, Split split) {
  return data::load_token_shards(config.data.dir, split, config.data.context, config.data.vocabulary);
}

using Maker = std::unique_ptr<data::Dataset>(const TrainConfig&, Split);

Datasets both_splits(const TrainConfig& config, Maker& make, std::string note = {}) {
  auto train = make(config, Split::train);
  auto test = make(config, Split::test);
  return {std::move(train), std::move(test), std::move(note)};
}

Datasets mnist_or_digits(const TrainConfig& config, const Settings& settings) {
  const auto& dir = config.data.dir;
  const auto& source = settings.find("data.dir")->source;
  if (data::find_mnist(dir, Split::train) && data::find_mnist(dir, Split::test)) return both_splits(config, make_mnist);
  if (source.origin != Origin::fallback)
    throw make_error(Errc::usage,
                     "{}: data.dir = {}: expected the four IDX files of MNIST there (train-images-idx3-ubyte, "
                     "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz)",
                     source.where, dir.string());
  return both_splits(
      config, make_digits,
      fmt::format("{} does not hold the MNIST files: using generated digits instead (scripts/get-data mnist "
                  "fetches the real ones)",
                  dir.string()));
}

}  // namespace

Datasets make_datasets(const TrainConfig& config, const Settings& settings) {
  if (config.data.name == "mnist") return mnist_or_digits(config, settings);
  if (config.data.name == "digits") return both_splits(config, make_digits);
  if (config.data.name == "text") return both_splits(config, make_text);
  if (config.data.name == "tokens") return both_splits(config, make_tokens);
  return both_splits(config, make_random);
}

}  // namespace ddprun::trainer

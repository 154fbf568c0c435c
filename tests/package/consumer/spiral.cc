// A plugin: points on spiral arms, and a network that learns on which arm each lies.
#include <cmath>

#include "ddprun/worker/data/sample_random.h"
#include "ddprun/worker/nn/layers.h"
#include "ddprun/worker/plugin/plugin.h"

using namespace ddprun;

class Spiral : public data::Dataset {
 public:
  Spiral(const plugin::DatasetOptions& options, double noise) : options_(options), noise_(static_cast<float>(noise)) {}
  std::int64_t size() const override { return options_.samples; }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(std::int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    data::SampleRandom random{options_.seed, static_cast<std::uint64_t>(options_.split),
                              static_cast<std::uint64_t>(index)};
    const std::int64_t arm = random.below(3);
    const float radius = random.uniform(), angle = 2.1F * static_cast<float>(arm) + 4 * radius;
    const float point[] = {radius * std::cos(angle) + noise_ * random.normal(),
                           radius * std::sin(angle) + noise_ * random.normal()};
    std::ranges::copy(std::as_bytes(std::span(point)), input.begin());
    std::ranges::copy(std::as_bytes(std::span(&arm, 1)), target.begin());
  }

 private:
  plugin::DatasetOptions options_;
  float noise_;
  data::SampleLayout layout_{.input_shape = {2}, .classes = 3};
};

extern "C" void ddprun_register(plugin::Registry& registry) {
  const auto width =
      registry.setting<std::int64_t>("spiral.width", 32, {.help = "hidden units", .min = 1, .max = 1024});
  const auto noise =
      registry.setting<double>("spiral.noise", 0.02, {.help = "standard deviation of a point", .min = 0});
  registry.datasets.add(
      "spiral", [noise](const plugin::DatasetOptions& options) { return std::make_unique<Spiral>(options, *noise); });
  registry.models.add("tanh_net", [width](const nn::ModelOptions& options, Generator& generator) {
    auto model = std::make_unique<nn::Sequential>();
    model->add(std::make_unique<nn::Linear>(numel(options.input), *width, generator))
        .add(std::make_unique<nn::Tanh>())
        .add(std::make_unique<nn::Linear>(*width, *width, generator))
        .add(std::make_unique<nn::Tanh>())
        .add(std::make_unique<nn::Linear>(*width, options.outputs, generator));
    return model;
  });
}

// A model whose layers take a given time, and longer at one rank.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "worker/nn/layers.h"
#include "worker/plugin/plugin.h"

using namespace ddprun;

namespace {

bool at_rank(std::int64_t rank) {
  const char* own = std::getenv("RANK");
  return own && std::to_string(rank) == own;
}

class WaitingLinear : public nn::Linear {
 public:
  WaitingLinear(std::int64_t in, std::int64_t out, Generator& generator, std::chrono::microseconds time)
      : Linear(in, out, generator), time_(time) {}
  Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const override {
    std::this_thread::sleep_for(time_);
    return Linear::apply(input, weight, bias);
  }

 private:
  const std::chrono::microseconds time_;
};

}  // namespace

extern "C" void ddprun_register(plugin::Registry& registry) {
  const auto layers = registry.setting<std::int64_t>("slow.layers", 6, {.help = "how many there are", .min = 1});
  const auto time = registry.setting<std::int64_t>("slow.layer_us", 0, {.help = "of a layer's pass", .min = 0});
  const auto more = registry.setting<std::int64_t>("slow.slow_us", 0, {.help = "at the slow rank", .min = 0});
  const auto rank = registry.setting<std::int64_t>("slow.rank", 0, {.help = "which one that is", .min = 0});
  registry.models.add("slow_layers", [=](const nn::ModelOptions& options, Generator& generator) {
    constexpr std::int64_t width = 8;
    const std::chrono::microseconds each(at_rank(*rank) ? *more : *time);
    auto model = std::make_unique<nn::Sequential>();
    model->add(std::make_unique<nn::Flatten>());
    for (std::int64_t i = 0; i < *layers; ++i)
      model->add(std::make_unique<WaitingLinear>(i == 0 ? numel(options.input) : width,
                                                 i + 1 == *layers ? options.outputs : width, generator, each));
    return model;
  });
}

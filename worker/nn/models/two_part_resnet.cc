// The first layers of a residual network in two modules, part1 and part2, so that each can be placed, frozen or loaded
// by itself.
#include "worker/nn/layers.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

std::unique_ptr<Sequential> make_part1(std::int64_t channels, Generator& generator) {
  auto part = std::make_unique<Sequential>();
  part->add("conv", std::make_unique<Conv2d>(channels, 64, 7, generator,
                                             Conv2dOptions{.stride = 2, .padding = 3, .bias = false}))
      .add("bn", std::make_unique<BatchNorm>(64))
      .add("relu", std::make_unique<ReLU>())
      .add("pool", std::make_unique<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2, .padding = 1}));
  return part;
}

std::unique_ptr<Sequential> make_part2(std::int64_t outputs, Generator& generator) {
  auto part = std::make_unique<Sequential>();
  part->add("conv",
            std::make_unique<Conv2d>(64, 128, 3, generator, Conv2dOptions{.stride = 2, .padding = 1, .bias = false}))
      .add("bn", std::make_unique<BatchNorm>(128))
      .add("relu", std::make_unique<ReLU>())
      .add("pool", std::make_unique<AdaptiveAvgPool2d>())
      .add("flatten", std::make_unique<Flatten>())
      .add("fc", std::make_unique<Linear>(128, outputs, generator));
  return part;
}

}  // namespace

std::unique_ptr<Module> make_two_part_resnet(const ModelOptions& options, Generator& generator) {
  auto model = std::make_unique<Sequential>();
  model->add("part1", make_part1(options.input[0], generator)).add("part2", make_part2(options.outputs, generator));
  return model;
}

}  // namespace ddprun::nn

// ResNet-18 and ResNet-50 (He et al. 2016) with torchvision's parameter names, in its order, and its initial
// distributions. The stem is "imagenet": convolution 7x7 with stride 2, then max-pooling 3x3 with stride 2; or "cifar",
// for small images: convolution 3x3 with stride 1, no pooling.
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "worker/nn/layers.h"
#include "worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

constexpr std::string_view cifar = "cifar", imagenet = "imagenet";

std::unique_ptr<Conv2d> stem_convolution(bool large, std::int64_t in, std::int64_t out, Generator& generator) {
  const Conv2dOptions options{
      .stride = large ? 2 : 1, .padding = large ? 3 : 1, .bias = false, .weights = ConvWeights::kaiming_normal};
  return std::make_unique<Conv2d>(in, out, large ? 7 : 3, generator, options);
}

struct Depth {
  std::string_view model;
  std::array<std::int64_t, 4> blocks;  // the number in each layer
  bool bottleneck;

  std::int64_t expansion() const { return bottleneck ? Bottleneck::expansion : 1; }
};
constexpr Depth resnet18{"resnet18", {2, 2, 2, 2}, false};
constexpr Depth resnet50{"resnet50", {3, 4, 6, 3}, true};

// width: the channels of its 3x3 convolutions
std::unique_ptr<Module> make_block(const Depth& depth, std::int64_t in, std::int64_t width, std::int64_t stride,
                                   Generator& generator) {
  if (depth.bottleneck) return std::make_unique<Bottleneck>(in, width, stride, generator);
  return std::make_unique<BasicBlock>(in, width, stride, generator);
}

// Makes a layer of blocks, of which the first changes the shape.
std::unique_ptr<Sequential> make_layer(const Depth& depth, std::size_t number, std::int64_t in, std::int64_t width,
                                       Generator& generator) {
  auto layer = std::make_unique<Sequential>();
  layer->add(make_block(depth, in, width, number == 0 ? 1 : 2, generator));
  for (std::int64_t i = 1; i < depth.blocks[number]; ++i)
    layer->add(make_block(depth, width * depth.expansion(), width, 1, generator));
  return layer;
}

std::unique_ptr<Module> make_resnet(const Depth& depth, const ModelOptions& options, Generator& generator) {
  if (options.stem != cifar && options.stem != imagenet)
    throw make_error(Errc::usage, "model {}: there is no stem '{}'; there are: {}", depth.model, options.stem,
                     fmt::join(resnet_stems(), ", "));
  const std::int64_t c = options.channels;
  if (c < 1) throw make_error(Errc::usage, "model {}: {} channels are not possible", depth.model, c);
  const bool large = options.stem == imagenet;
  auto model = std::make_unique<Sequential>();
  model->add("conv1", stem_convolution(large, options.input[0], c, generator))
      .add("bn1", std::make_unique<BatchNorm>(c))
      .add("relu", std::make_unique<ReLU>());
  if (large) model->add("maxpool", std::make_unique<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2, .padding = 1}));
  std::int64_t in = c;
  for (std::size_t number = 0; number < depth.blocks.size(); ++number) {
    const std::int64_t width = c << number;
    model->add(fmt::format("layer{}", number + 1), make_layer(depth, number, in, width, generator));
    in = width * depth.expansion();
  }
  model->add("avgpool", std::make_unique<AdaptiveAvgPool2d>())
      .add("flatten", std::make_unique<Flatten>())
      .add("fc", std::make_unique<Linear>(in, options.outputs, generator));
  return model;
}

}  // namespace

std::vector<std::string_view> resnet_stems() {
  return {cifar, imagenet};
}

std::unique_ptr<Module> make_resnet18(const ModelOptions& options, Generator& generator) {
  return make_resnet(resnet18, options, generator);
}

std::unique_ptr<Module> make_resnet50(const ModelOptions& options, Generator& generator) {
  return make_resnet(resnet50, options, generator);
}

}  // namespace ddprun::nn

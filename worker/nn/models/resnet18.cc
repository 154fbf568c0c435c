// ResNet-18 (He et al. 2016) with torchvision's parameter names, in its order, and its initial distributions. The stem
// is "imagenet": convolution 7x7 with stride 2, then max-pooling 3x3 with stride 2; or "cifar", for small images:
// convolution 3x3 with stride 1, no pooling.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/nn/layers.h"
#include "ddprun/worker/nn/models/makers.h"

namespace ddprun::nn {
namespace {

constexpr std::string_view cifar = "cifar", imagenet = "imagenet";

std::unique_ptr<Conv2d> stem_convolution(bool large, std::int64_t in, std::int64_t out, Generator& generator) {
  const Conv2dOptions options{
      .stride = large ? 2 : 1, .padding = large ? 3 : 1, .bias = false, .weights = ConvWeights::kaiming_normal};
  return std::make_unique<Conv2d>(in, out, large ? 7 : 3, generator, options);
}

// Two blocks, of which the first changes the shape.
std::unique_ptr<Sequential> make_layer(std::int64_t in, std::int64_t out, std::int64_t stride, Generator& generator) {
  auto layer = std::make_unique<Sequential>();
  layer->add(std::make_unique<BasicBlock>(in, out, stride, generator))
      .add(std::make_unique<BasicBlock>(out, out, 1, generator));
  return layer;
}

}  // namespace

std::vector<std::string_view> resnet_stems() {
  return {cifar, imagenet};
}

std::unique_ptr<Module> make_resnet18(const ModelOptions& options, Generator& generator) {
  if (options.stem != cifar && options.stem != imagenet)
    throw make_error(Errc::usage, "model resnet18: there is no stem '{}'; there are: {}", options.stem,
                     fmt::join(resnet_stems(), ", "));
  const std::int64_t c = options.channels;
  if (c < 1) throw make_error(Errc::usage, "model resnet18: {} channels are not possible", c);
  const bool large = options.stem == imagenet;
  auto model = std::make_unique<Sequential>();
  model->add("conv1", stem_convolution(large, options.input[0], c, generator))
      .add("bn1", std::make_unique<BatchNorm>(c))
      .add("relu", std::make_unique<ReLU>());
  if (large) model->add("maxpool", std::make_unique<MaxPool2d>(PoolOptions{.kernel = 3, .stride = 2, .padding = 1}));
  model->add("layer1", make_layer(c, c, 1, generator))
      .add("layer2", make_layer(c, 2 * c, 2, generator))
      .add("layer3", make_layer(2 * c, 4 * c, 2, generator))
      .add("layer4", make_layer(4 * c, 8 * c, 2, generator))
      .add("avgpool", std::make_unique<AdaptiveAvgPool2d>())
      .add("flatten", std::make_unique<Flatten>())
      .add("fc", std::make_unique<Linear>(8 * c, options.outputs, generator));
  return model;
}

}  // namespace ddprun::nn
